"""Reservations: devices of a kind kept over a time for a team's jobs that name them."""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet, Sum
from django.utils import timezone

from cluster.core.bookings import BookingBody
from cluster.core.errors import InvalidBody
from cluster.core.requests import MILLI
from cluster.core.states import ClusterName, DeviceState
from cluster.models import BookedDevices, Device
from cluster.services.queue import ring_coordinator
from journal.services import audit


def present_bookings(name: ClusterName, *, at: datetime | None = None) -> QuerySet[BookedDevices]:
    """Return the reservations of a cluster that are not over yet."""
    rows = BookedDevices.objects.filter(is_simulated=name is ClusterName.REHEARSAL)
    return rows.filter(end_at__gt=at or timezone.now()).select_related("team")


@transaction.atomic
def book_devices(*, name: ClusterName, team_id: UUID, body: BookingBody, actor: str) -> BookedDevices:
    """Keep devices for a team from one time to another; jobs that run then are not stopped before that.

    Raises:
        InvalidBody: the name is taken, the kind unknown, or at some time more would be kept than there is.
    """
    simulated = name is ClusterName.REHEARSAL
    if present_bookings(name).filter(name=body.name).exists():
        raise InvalidBody([("/name", f"there is a reservation {body.name!r} already")])
    BookedDevices.objects.filter(name=body.name, is_simulated=simulated).delete()  # one that is over
    devices = Device.objects.filter(node__is_simulated=simulated, kind=body.kind)
    there = MILLI * devices.exclude(state=DeviceState.LOST).count()
    if not there:
        raise InvalidBody([("/kind", f"the cluster has no {body.kind}")])
    kept = _kept_at_once(name, body)
    if kept + body.milli > there:
        rule = f"the cluster has {there / MILLI:g}, of which {kept / MILLI:g} are reserved in that time"
        raise InvalidBody([("/devices", rule)])
    row = BookedDevices.objects.create(
        name=body.name,
        is_simulated=simulated,
        team_id=team_id,
        kind=body.kind,
        milli=body.milli,
        start_at=body.start,
        end_at=body.end,
        is_lendable=body.lendable,
    )
    _tell("reservation.book", row, name, actor)
    return row


@transaction.atomic
def cancel_booking(row: BookedDevices, *, actor: str) -> None:
    """Give a reservation up; what runs on its devices goes on."""
    name = ClusterName.REHEARSAL if row.is_simulated else ClusterName.REAL
    _tell("reservation.cancel", row, name, actor)
    row.delete()


def _kept_at_once(name: ClusterName, body: BookingBody) -> int:
    """Return the most that others keep of the kind at one time between its start and end."""
    others = present_bookings(name).filter(kind=body.kind, start_at__lt=body.end, end_at__gt=body.start)
    moments = {body.start, *(row.start_at for row in others if row.start_at > body.start)}
    sums = [
        others.filter(start_at__lte=moment, end_at__gt=moment).aggregate(all=Sum("milli"))["all"] or 0
        for moment in moments
    ]
    return max(sums)


def _tell(action: str, row: BookedDevices, name: ClusterName, actor: str) -> None:
    detail = {
        "name": row.name,
        "kind": row.kind,
        "devices": row.milli / MILLI,
        "start": row.start_at.isoformat(),
        "end": row.end_at.isoformat(),
    }
    audit(actor=actor, action=action, target=f"queue:{name}", team_id=row.team_id, detail=detail)
    ring_coordinator()
