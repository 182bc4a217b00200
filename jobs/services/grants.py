"""What the queue has given a job: which devices it may use now, and whether it has to leave them."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from cluster.core.states import AllotmentState, EntryState
from cluster.models import Allotment, Device, QueueEntry
from cluster.services.queue import release_devices, set_wanted, vacate
from jobs.core.states import JobState
from jobs.services.lifecycle import lock_job, move_job

PREEMPTED = "its devices were needed elsewhere"


@dataclass(frozen=True)
class Grant:
    """Devices that a job holds.

    Attributes:
        devices: to work on now; those an elastic job has to give back are not among them.
        milli: thousandths of each that are the job's.
        stopping: the job has to save its state, leave all of them and call `stopped`.
        leaving: of an elastic job, what it has to leave and give back with `gave_back` while it goes on.
    """

    devices: tuple[Device, ...]
    milli: int
    stopping: bool
    leaving: tuple[Device, ...] = ()


def grant_of(job_id: UUID) -> Grant | None:
    """Return what a job holds, or None while it waits."""
    entry = (
        QueueEntry.objects.filter(pk=job_id, state__in=[EntryState.RUNNING, EntryState.STOPPING])
        .prefetch_related("allotments__device__node")
        .first()
    )
    if entry is None:
        return None
    stopping = entry.state == EntryState.STOPPING
    rows = list(entry.allotments.all())
    held = [
        row
        for row in rows
        if row.state == AllotmentState.HELD or (stopping and row.state == AllotmentState.LEAVING)
    ]
    leaving = [row for row in rows if row.state == AllotmentState.LEAVING and not stopping]
    milli = min((row.milli for row in held), default=0)
    return Grant(_devices(held), milli, stopping, _devices(leaving))


def _devices(rows: Iterable[Allotment]) -> tuple[Device, ...]:
    devices = {row.device_id: row.device for row in rows}
    return tuple(sorted(devices.values(), key=lambda device: (device.node.name, device.index)))


def others_wait(job_id: UUID) -> bool:
    """Return whether another job waits for devices and may have them."""
    waiting = QueueEntry.objects.filter(state=EntryState.WAITING, is_held=False, is_simulated=False)
    return waiting.exclude(pk=job_id).exists()


def want(job_id: UUID, devices: int) -> None:
    """Say how many devices an elastic job can use now; what it has above that is taken back."""
    set_wanted(job_id, devices)


def gave_back(job_id: UUID, devices: Iterable[Device]) -> None:
    """Say that an elastic job has left devices that are no longer in its grant."""
    release_devices(job_id, [device.pk for device in devices])


@transaction.atomic
def stopped(job_id: UUID) -> None:
    """Say that a job that had to stop has saved its state and left: it waits in the queue again."""
    job = lock_job(job_id)
    if job.cancel_asked_at is not None and job.state == JobState.RUNNING:
        move_job(job, JobState.CANCELLED, reason=job.reason)
    elif vacate(job_id) and job.state == JobState.RUNNING:
        move_job(job, JobState.QUEUED, substate="preempted", reason=PREEMPTED)
