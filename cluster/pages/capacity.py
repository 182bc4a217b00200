"""Capacity by kind and team, where everything lies, and how much of what is free can be used together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from cluster.core.placement.fragmentation import gang_rooms
from cluster.core.states import AllotmentState, ClusterName, DeviceState
from cluster.models import Allotment, Device
from cluster.pages.queue import common
from cluster.pages.reservations import bookings_shown
from cluster.queries import teams_of
from cluster.services.live_state import read_quotas
from cluster.services.quotas import overbooked

MOST_NODES = 600


@dataclass
class Cell:
    """A device on the map."""

    device: Device
    look: str  # free | mine | other | leaving | kept | out
    words: str


@login_required
@require_safe
def capacity(request: HttpRequest) -> HttpResponse:
    """Show what there is of each kind, who holds it, and the map of all nodes; to htmx, only the body."""
    context = common(request, "capacity")
    devices = list(
        Device.objects.filter(node__is_simulated=context["is_simulated"])
        .select_related("node")
        .order_by("node__name", "index")
    )
    rows = Allotment.objects.filter(entry__is_simulated=context["is_simulated"])
    held: dict[UUID, list[Allotment]] = {}
    for row in rows.select_related("entry__team"):
        held.setdefault(row.device_id, []).append(row)
    mine = set(teams_of(request.user).values_list("pk", flat=True))
    nodes = _nodes(devices, held, mine)
    context |= {
        "kinds": _kinds(devices, held),
        "teams": _teams(devices, held, request, simulated=context["is_simulated"]),
        "nodes": list(nodes.items())[:MOST_NODES],
        "more_nodes": max(0, len(nodes) - MOST_NODES),
        "fragments": _fragments(devices, held),
        "warnings": overbooked(),
        "legend": LEGEND,
        "kind_names": sorted({device.kind for device in devices}),
    }
    context |= bookings_shown(request, ClusterName(context["cluster"]))
    part = request.headers.get("HX-Target") == "capacity"
    return render(request, "cluster/capacity_body.html" if part else "cluster/capacity.html", context)


LEGEND = [
    ("free", "free"),
    ("mine", "held by your teams"),
    ("other", "held by other teams"),
    ("leaving", "being left"),
    ("kept", "kept for a job that starts soon"),
    ("out", "out of use"),
]


def _nodes(
    devices: Sequence[Device], held: dict[UUID, list[Allotment]], mine: set[UUID]
) -> dict[str, list[Cell]]:
    nodes: dict[str, list[Cell]] = {}
    for device in devices:
        nodes.setdefault(device.node.name, []).append(_cell(device, held.get(device.pk, []), mine))
    return nodes


def _cell(device: Device, rows: Sequence[Allotment], mine: set[UUID]) -> Cell:
    states = {row.state for row in rows}
    used = sum(row.milli for row in rows if row.state != AllotmentState.KEPT)
    names = sorted({row.entry.label for row in rows if row.entry.team_id in mine})
    words = f"{used / 10:g} % held" + (f" by {', '.join(names)}" if names else "")
    if AllotmentState.LEAVING in states:
        return Cell(device, "leaving", f"being left, {words}")
    if AllotmentState.HELD in states:
        owned = any(row.entry.team_id in mine for row in rows)
        return Cell(device, "mine" if owned else "other", words)
    if AllotmentState.KEPT in states:
        return Cell(device, "kept", "kept for a job that starts soon")
    if device.state != DeviceState.HEALTHY:
        return Cell(device, "out", device.state)
    return Cell(device, "free", "free")


def _used(rows: Sequence[Allotment]) -> int:
    return sum(row.milli for row in rows if row.state != AllotmentState.KEPT)


def _kinds(devices: Sequence[Device], held: dict[UUID, list[Allotment]]) -> list[dict[str, Any]]:
    kinds: dict[str, dict[str, Any]] = {}
    for device in devices:
        row = kinds.setdefault(
            device.kind, {"kind": device.kind, "total": 0, "used": 0.0, "free": 0.0, "out": 0.0}
        )
        used = _used(held.get(device.pk, [])) / 1000
        row["total"] += 1
        row["used"] += used
        row["free" if device.state == DeviceState.HEALTHY else "out"] += 1 - used
    return list(kinds.values())


def _teams(
    devices: Sequence[Device],
    held: dict[UUID, list[Allotment]],
    request: HttpRequest,
    *,
    simulated: bool,
) -> list[dict[str, Any]]:
    """Return what each team holds of each kind beside its quota; other teams are one row."""
    slugs = set(teams_of(request.user).values_list("slug", flat=True))
    quotas = {team.name: team for team in read_quotas()}
    used: dict[tuple[str, str], float] = {}
    for device in devices:
        for row in held.get(device.pk, []):
            if row.state != AllotmentState.KEPT:
                team = row.entry.team.slug if row.entry.team.slug in slugs else ""
                used[team, device.kind] = used.get((team, device.kind), 0.0) + row.milli / 1000
    kinds = {device.kind for device in devices}
    for slug in slugs:
        for kind in kinds & set(quotas[slug].guaranteed):
            used.setdefault((slug, kind), 0.0)
    found = []
    for (slug, kind), amount in sorted(used.items(), key=lambda item: (item[0][0] == "", item[0])):
        guaranteed = quotas[slug].guaranteed.get(kind, 0) / 1000 if slug else None
        found.append(
            {
                "team": slug,
                "kind": kind,
                "used": amount,
                "guaranteed": guaranteed,
                "borrowed": None if guaranteed is None else max(0.0, amount - guaranteed),
            }
        )
    return found


def _fragments(devices: Sequence[Device], held: dict[UUID, list[Allotment]]) -> list[dict[str, Any]]:
    """Return for each kind how many gangs of some sizes fit inside one node now."""
    free: dict[str, dict[str, int]] = {}
    for device in devices:
        usable = device.state == DeviceState.HEALTHY and not held.get(device.pk)
        nodes = free.setdefault(device.kind, {})
        nodes[device.node.name] = nodes.get(device.node.name, 0) + usable
    return [
        {"kind": kind, "free": sum(nodes.values()), "rooms": gang_rooms(list(nodes.values()))}
        for kind, nodes in free.items()
        if nodes
    ]
