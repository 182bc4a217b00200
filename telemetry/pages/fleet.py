"""The fleet: a heat map of every device, the ones to look at, and what is known of one of them."""

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from cluster.models import Device
from cluster.services.devices import FLEET
from jobs.core.states import JobState
from jobs.models import TrainingRun
from journal.queries import window_of
from telemetry.core.evidence import evidence_rows, meaning
from telemetry.core.heat import LEVELS
from telemetry.models import BurnIn
from telemetry.pages.incidents import team_streams
from telemetry.queries.failure_counts import failures_for
from telemetry.queries.fleet import MOST_LINKS, NodeHeat, fleet_heat, slowdowns, worst_devices
from telemetry.queries.incidents import verdicts_for
from telemetry.queries.training import training_jobs

NODES_A_PAGE = 100
ROWS = 10


@login_required
@require_safe
def fleet(request: HttpRequest) -> HttpResponse:
    """Show how slow every device was lately; to htmx, only the map and the tables."""
    seq = window_of(FLEET).last_seq
    streams = [(FLEET, seq), *team_streams(request)]
    nodes = fleet_heat(request.user)
    text = request.GET.get("q", "").replace("\0", "").strip().lower()
    found = [node for node in nodes if text in node.name.lower()] if text else nodes
    count = sum(len(node.devices) for node in nodes)
    page = _page(request.GET.get("page", ""), len(found))
    context: dict[str, Any] = {
        "section": "fleet",
        "streams": streams,
        "nodes": found,
        "count": count,
        "node_count": len(nodes),
        "text": text,
        "has_links": sum(len(node.devices) for node in found) <= MOST_LINKS,
        "worst": worst_devices(nodes),
        "notable": sum(node.notable for node in nodes),
        "levels": [(f"h{i}", words) for i, words in enumerate(LEVELS)],
        "rows": found[(page - 1) * NODES_A_PAGE : page * NODES_A_PAGE],
        "page": page,
        "pages": _pages(len(found)),
    }
    part = request.headers.get("HX-Target") == "fleet"
    return render(request, "telemetry/fleet_body.html" if part else "telemetry/fleet.html", context)


@login_required
@require_safe
def node(request: HttpRequest, node_id: UUID) -> HttpResponse:
    """Show the devices of one node."""
    found: NodeHeat | None = next((n for n in fleet_heat(request.user) if n.id == node_id), None)
    if found is None:
        raise Http404("There is no such node, or it has no devices.")
    context = {"section": "fleet", "node": found, "levels": [(f"h{i}", w) for i, w in enumerate(LEVELS)]}
    return render(request, "telemetry/fleet_node.html", context)


@login_required
@require_safe
def device(request: HttpRequest, device_id: UUID) -> HttpResponse:
    """Show what is known of one device: its incidents with evidence, burn-ins, jobs and failures."""
    row = Device.objects.filter(pk=device_id).select_related("node").first()
    if row is None:
        raise Http404("There is no such device.")
    seq = window_of(FLEET).last_seq
    verdicts = list(verdicts_for(request.user).filter(device=row).order_by("-opened_at", "-id")[:ROWS])
    latest = verdicts[0] if verdicts else None
    context = {
        "section": "fleet",
        "seq": seq,
        "device": row,
        "slowdown": slowdowns().get(row.pk),
        "verdicts": verdicts,
        "latest": latest,
        "meaning": meaning(latest.kind) if latest else "",
        "evidence": evidence_rows(latest.evidence) if latest else [],
        "burn_ins": BurnIn.objects.filter(device=row)[:ROWS],
        "jobs": _jobs_on(request, row),
        "failures": failures_for(request.user).filter(device=row).select_related("job")[:ROWS],
    }
    return render(request, "telemetry/fleet_device.html", context)


def _jobs_on(request: HttpRequest, row: Device) -> list[tuple[TrainingRun, list[int]]]:
    """Return the running training jobs that have ranks on a device, and which."""
    found = []
    for job in training_jobs(request.user).filter(state=JobState.RUNNING):
        devices = enumerate(job.training.devices or [])
        ranks = [rank for rank, place in devices if str(place.get("id")) == str(row.pk)]
        if ranks:
            found.append((job.training, ranks))
    return found


def _pages(count: int) -> int:
    return max(-(-count // NODES_A_PAGE), 1)


def _page(text: str, count: int) -> int:
    wanted = int(text) if text.isdecimal() and len(text) < 7 else 1
    return min(max(wanted, 1), _pages(count))
