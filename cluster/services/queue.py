"""The queue: entering and leaving it, holding it, and what a job may do with what it was given."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from cluster.core.queue import Demand, demand_to_json
from cluster.core.states import AllotmentState, ClusterName, EntryState
from cluster.models import Allotment, Coordinator, QueueEntry, Team, User
from cluster.services.accounting import charge
from cluster.services.progress import clock_speed, settle
from journal.services import audit, ring

TICK = "cluster.tick"
QUEUE = "coordinator"
LAST = 2**62


def coordinator_of(name: ClusterName) -> Coordinator:
    """Return the rules of a queue, made from the settings the first time."""
    row, _ = Coordinator.objects.get_or_create(name=name, defaults={"policy": settings.QUEUE_POLICY})
    return row


def cluster_of(*, is_simulated: bool) -> ClusterName:
    """Return which of the two queues is meant."""
    return ClusterName.REHEARSAL if is_simulated else ClusterName.REAL


def ring_coordinator() -> None:
    """Have the queue looked at now rather than within a second."""
    ring(TICK, queue=QUEUE, args=[])


@transaction.atomic
def enter_queue(
    *,
    job_id: UUID,
    job_kind: str,
    label: str,
    team: Team,
    owner: User,
    demand: Demand,
    declared: dict[str, Any],
    is_simulated: bool = False,
) -> QueueEntry:
    """Put a job into the queue; one that is in it already stays where it is."""
    fields = {
        "job_kind": job_kind,
        "label": label,
        "team": team,
        "owner": owner,
        "demand": demand_to_json(demand),
        "declared": declared,
        "is_simulated": is_simulated,
        "submitted_at": timezone.now(),
        "rank": LAST,
    }
    entry, created = QueueEntry.objects.select_for_update().get_or_create(job_id=job_id, defaults=fields)
    if not created and entry.state == EntryState.ENDED:
        for name, value in {**fields, "state": EntryState.WAITING}.items():
            setattr(entry, name, value)
        entry.save()
    ring_coordinator()
    return entry


@transaction.atomic
def leave_queue(job_id: UUID, *, at: datetime | None = None) -> None:
    """Take a job that ended out of the queue; what it held is free from now on."""
    entry = _present(job_id)
    if entry is None:
        return
    now = at or timezone.now()
    _end_run(entry, now)
    entry.state, entry.is_held, entry.held_reason = EntryState.ENDED, False, ""
    _forget_wait(entry)
    entry.save()
    ring_coordinator()


@transaction.atomic
def vacate(job_id: UUID, *, at: datetime | None = None) -> bool:
    """Put a job that was told to stop, and has, back among those who wait; what it did counts on.

    Return whether there was anything to do.
    """
    entry = _present(job_id)
    if entry is None or entry.state == EntryState.WAITING:
        return False
    _end_run(entry, at or timezone.now())
    entry.state = EntryState.WAITING
    _forget_wait(entry)
    entry.save()
    ring_coordinator()
    return True


@transaction.atomic
def release_devices(job_id: UUID, device_ids: Iterable[UUID]) -> None:
    """Take back devices that an elastic job has left; they are free from now on."""
    entry = _present(job_id)
    if entry is None:
        return
    now = timezone.now()
    settle(entry, now, speed=_speed(entry))
    _give_back(entry, entry.allotments.filter(device_id__in=list(device_ids)), now)
    entry.save(update_fields=["attained_device_s", "done_s", "done_at", "received"])
    ring_coordinator()


@transaction.atomic
def set_wanted(job_id: UUID, devices: int) -> None:
    """Note how many devices an elastic job can use now; what it has above that is to be given back."""
    entry = _present(job_id)
    if entry is None or not entry.demand["elastic"] or entry.demand["wanted"] == devices:
        return
    entry.demand = {**entry.demand, "wanted": max(1, devices)}
    entry.save(update_fields=["demand"])
    held = entry.allotments.filter(state=AllotmentState.HELD).order_by("since", "id")
    surplus = list(held.values_list("pk", flat=True))[max(1, devices) :]
    Allotment.objects.filter(pk__in=surplus).update(state=AllotmentState.LEAVING)
    ring_coordinator()


@transaction.atomic
def set_lends(job_id: UUID, lends: bool) -> None:
    """Note whether others may work in the idle moments of a job's devices."""
    entry = _present(job_id)
    if entry is not None and entry.demand.get("lends", False) != lends:
        entry.demand = {**entry.demand, "lends": lends}
        entry.save(update_fields=["demand"])
        ring_coordinator()


@transaction.atomic
def hold_queue(*, name: ClusterName, actor: str, reason: str) -> Coordinator:
    """Start nothing more until the queue is released; what runs goes on."""
    return _set_held(name, actor, reason or "held by an operator")


@transaction.atomic
def free_queue(*, name: ClusterName, actor: str) -> Coordinator:
    """Let a held queue go on."""
    return _set_held(name, actor, "")


def _set_held(name: ClusterName, actor: str, reason: str) -> Coordinator:
    coordinator_of(name)
    row = Coordinator.objects.select_for_update().get(pk=name)
    if row.held_reason != reason:
        row.held_reason, row.version = reason, row.version + 1
        row.save(update_fields=["held_reason", "version"])
        action = "queue.hold" if reason else "queue.release"
        audit(actor=actor, action=action, target=f"queue:{name}", detail={"reason": reason})
        ring_coordinator()
    return row


@transaction.atomic
def hold_entry(*, job_id: UUID, actor: str, reason: str, held: bool) -> QueueEntry:
    """Set a waiting job aside, or let it wait again; QueueEntry.DoesNotExist if it is in no queue."""
    entry = QueueEntry.objects.select_for_update().exclude(state=EntryState.ENDED).get(pk=job_id)
    if entry.is_held != held:
        entry.is_held, entry.held_reason = held, reason if held else ""
        entry.save(update_fields=["is_held", "held_reason"])
        audit(
            actor=actor,
            action="job.hold" if held else "job.release",
            target=f"job:{job_id}",
            team_id=entry.team_id,
            detail={"reason": reason},
        )
        ring_coordinator()
    return entry


def _present(job_id: UUID) -> QueueEntry | None:
    """Lock a job's row, if it is in the queue."""
    rows = QueueEntry.objects.select_for_update().exclude(state=EntryState.ENDED)
    return rows.filter(pk=job_id).first()


def _end_run(entry: QueueEntry, now: datetime) -> None:
    settle(entry, now, speed=_speed(entry))
    entry.done_at = None
    _give_back(entry, entry.allotments.all(), now)
    if entry.started_at is not None:
        entry.executed_s += max(0.0, (now - entry.started_at).total_seconds()) * _speed(entry)
    entry.started_at = None


def _forget_wait(entry: QueueEntry) -> None:
    entry.rank, entry.position, entry.reason, entry.message, entry.wait = LAST, None, "", "", {}
    entry.predicted_start_at = entry.earliest_start_at = entry.latest_start_at = None


def _give_back(entry: QueueEntry, rows: Any, now: datetime) -> None:
    charge(rows, now, is_simulated=entry.is_simulated)
    speed = _speed(entry)
    for row in rows.exclude(state=AllotmentState.KEPT):
        seconds = max(0.0, (now - row.since).total_seconds()) * speed
        entry.attained_device_s += seconds * row.milli / 1000
    rows.delete()


def _speed(entry: QueueEntry) -> float:
    return clock_speed(is_simulated=entry.is_simulated)
