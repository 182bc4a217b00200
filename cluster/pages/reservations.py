"""Booking devices on the page of the capacity."""

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from cluster.core.bookings import read_booking
from cluster.core.errors import InvalidBody
from cluster.core.roles import Permission, allows
from cluster.core.states import ClusterName
from cluster.pages.queue import cluster_shown
from cluster.queries import role_in, teams_of, teams_where
from cluster.services.reservations import book_devices, cancel_booking, present_bookings


def bookings_shown(request: HttpRequest, name: ClusterName) -> dict[str, Any]:
    """Return what the page of the capacity shows of reservations; of other teams' only time and size."""
    mine = set(teams_of(request.user).values_list("pk", flat=True))
    operated = list(teams_where(request.user, Permission.OPERATE).order_by("slug"))
    may = {team.pk for team in operated}
    rows = [
        {
            "name": row.name if row.team_id in mine else "",
            "team": row.team.slug if row.team_id in mine else "",
            "kind": row.kind,
            "devices": row.milli / 1000,
            "start": row.start_at,
            "end": row.end_at,
            "lendable": row.is_lendable,
            "team_id": row.team_id if row.team_id in may else None,
        }
        for row in present_bookings(name)
    ]
    return {"bookings": rows, "operated": operated}


@login_required
@require_POST
def reservations(request: HttpRequest) -> HttpResponse:
    """Book devices for a team that the person operates, or give a booking up."""
    name, actor = cluster_shown(request), request.user.get_username()
    team = get_object_or_404(teams_of(request.user), slug=request.POST.get("team", ""))
    if not allows(role_in(request.user, team.pk), Permission.OPERATE):
        raise PermissionDenied("Only operators of the team may reserve devices for it.")
    if request.POST.get("action") == "cancel":
        row = get_object_or_404(present_bookings(name), team=team, name=request.POST.get("name", ""))
        cancel_booking(row, actor=actor)
        messages.success(request, f"The reservation {row.name} is given up.")
        return _back(name)
    try:
        row = book_devices(
            name=name, team_id=team.pk, body=read_booking(_typed(request), timezone.now()), actor=actor
        )
    except InvalidBody as error:
        faults = "; ".join(f"{pointer.strip('/')}: {rule}" for pointer, rule in error.faults)
        messages.error(request, f"Not done: {faults}.")
    else:
        messages.success(request, f"Reserved. Jobs of {team.name} use it with reservation: {row.name}.")
    return _back(name)


def _typed(request: HttpRequest) -> dict[str, Any]:
    """Return the form as the body of the API; its times are those of the page, UTC."""
    body: dict[str, Any] = {key: request.POST.get(key, "").strip() for key in ("name", "kind", "devices")}
    for key in ("start", "end"):
        text = request.POST.get(key, "").strip()
        if text:
            body[key] = _with_zone(text)
    return body | {"lendable": "lendable" in request.POST}


def _with_zone(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=timezone.get_default_timezone())
    return zoned.isoformat()


def _back(name: ClusterName) -> HttpResponse:
    address = redirect("capacity")
    if name is ClusterName.REHEARSAL:
        address["Location"] += "?cluster=rehearsal"
    return address
