"""How often what broke: by kind, by device and over time."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, Max, Q, QuerySet
from django.db.models.functions import TruncDay, TruncHour, TruncMinute
from django.utils import timezone

from cluster.models import Device, User
from cluster.queries import teams_of
from telemetry.models import FailureEvent

# name -> (words, span, length of an interval)
PERIODS = {
    "hour": ("last hour", timedelta(hours=1), "minute"),
    "day": ("last day", timedelta(days=1), "hour"),
    "week": ("last week", timedelta(days=7), "hour"),
    "month": ("last 30 days", timedelta(days=30), "day"),
}
TRUNCATE = {"minute": TruncMinute, "hour": TruncHour, "day": TruncDay}
LENGTH = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
MOST_KINDS, MOST_DEVICES = 8, 20


class KindCount(NamedTuple):
    """A kind of failure: how many there were, on how many devices, in how many jobs, and the last one."""

    kind: str
    failures: int
    devices: int
    jobs: int
    last: datetime


class DeviceCount(NamedTuple):
    """A device and its failures."""

    device: Device
    failures: int
    last: datetime


def failures_for(user: User | AnonymousUser) -> QuerySet[FailureEvent]:
    """Return the failures of one's teams, and those of devices, which nobody owns."""
    return FailureEvent.objects.filter(Q(job__team__in=teams_of(user)) | Q(job__isnull=True))


def since(period: str, now: datetime | None = None) -> datetime:
    """Return when a period began."""
    return (now or timezone.now()) - PERIODS[period][1]


def by_kind(rows: QuerySet[FailureEvent]) -> list[KindCount]:
    """Return the kinds of failures, commonest first."""
    found = (
        rows.order_by()
        .values("kind")
        .annotate(
            n=Count("id"),
            devices=Count("device", distinct=True),
            jobs=Count("job", distinct=True),
            last=Max("at"),
        )
    )
    kinds = [KindCount(r["kind"], r["n"], r["devices"], r["jobs"], r["last"]) for r in found]
    return sorted(kinds, key=lambda row: (-row.failures, row.kind))


def by_device(rows: QuerySet[FailureEvent]) -> list[DeviceCount]:
    """Return the devices that failed most often."""
    found = (
        rows.filter(device__isnull=False).order_by().values("device").annotate(n=Count("id"), last=Max("at"))
    )
    top = list(found.order_by("-n", "device")[:MOST_DEVICES])
    devices = Device.objects.select_related("node").in_bulk([row["device"] for row in top])
    return [DeviceCount(devices[row["device"]], row["n"], row["last"]) for row in top]


def over_time(
    rows: QuerySet[FailureEvent], period: str, now: datetime | None = None
) -> tuple[list[str], dict[str, list[int]]]:
    """Return the starts of a period's intervals and each kind's failures in them, rare kinds together."""
    now = now or timezone.now()
    unit = PERIODS[period][2]
    start = _floor(since(period, now), unit)
    count = int((now - start) / LENGTH[unit]) + 1
    times = [start + i * LENGTH[unit] for i in range(count)]
    places = {moment: i for i, moment in enumerate(times)}
    found: dict[str, list[int]] = {}
    truncated = TRUNCATE[unit]("at", tzinfo=UTC)
    for kind, moment, n in (
        rows.filter(at__gte=start).order_by().annotate(slot=truncated).values_list("kind", "slot")
        .annotate(n=Count("id"))
    ):  # fmt: skip
        if moment in places:
            found.setdefault(kind, [0] * count)[places[moment]] += n
    ordered = sorted(found.items(), key=lambda item: (-sum(item[1]), item[0]))
    kept = dict(ordered[:MOST_KINDS])
    if rest := ordered[MOST_KINDS:]:
        kept["others"] = [sum(values) for values in zip(*(counts for _, counts in rest), strict=True)]
    return [moment.isoformat() for moment in times], kept


def _floor(moment: datetime, unit: str) -> datetime:
    moment = moment.astimezone(UTC).replace(second=0, microsecond=0)
    if unit == "minute":
        return moment
    return moment.replace(minute=0) if unit == "hour" else moment.replace(minute=0, hour=0)
