"""What jobs have done of their work and on which kind of devices, counted when what they hold changes."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from cluster.core.decision import Slice
from cluster.core.queue import demand_from_json, pace_of
from cluster.core.states import AllotmentState, ClusterName, EntryState
from cluster.models import Coordinator, QueueEntry


def settle(entry: QueueEntry, now: datetime, *, speed: float) -> None:
    """Count what a running job has done since it was last counted; the caller saves the row.

    Has to come before what the job holds changes. A clock that jumped back counts nothing.
    """
    if entry.started_at is None:
        return
    since = entry.started_at if entry.done_at is None else entry.done_at
    rows = entry.allotments.exclude(state=AllotmentState.KEPT).select_related("device")
    slices = [Slice("", row.device.index, row.milli) for row in rows]
    kind = rows[0].device.kind if slices else ""
    seconds = max(0.0, (now - since).total_seconds()) * speed
    entry.done_s += seconds * pace_of(demand_from_json(entry.demand), kind, slices)
    if kind and seconds:
        entry.received = {**entry.received, kind: entry.received.get(kind, 0.0) + seconds}
    entry.done_at = max(now, since)


def settle_all(job_ids: Iterable[UUID | str], now: datetime, *, speed: float) -> None:
    """Count what some jobs have done until now, before what they hold changes."""
    running = QueueEntry.objects.filter(pk__in=list(job_ids), state=EntryState.RUNNING)
    for entry in running.prefetch_related("allotments__device"):
        settle(entry, now, speed=speed)
        entry.save(update_fields=["done_s", "done_at", "received"])


def clock_speed(*, is_simulated: bool) -> float:
    """Return how fast the clock of a job's queue runs."""
    if not is_simulated:
        return 1.0
    row = Coordinator.objects.filter(pk=ClusterName.REHEARSAL).values_list("clock_speed", flat=True).first()
    return row or 1.0
