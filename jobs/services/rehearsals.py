"""Rehearsal jobs: they occupy simulated devices for a time and do nothing else, as seen by the queue."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from cluster.core.decision import Slice
from cluster.core.queue import Demand, demand_from_json, pace_of
from cluster.core.states import AllotmentState, ClusterName, EntryState
from cluster.models import Allotment, QueueEntry
from cluster.services.queue import coordinator_of, leave_queue, release_devices, vacate
from jobs.core.errors import InvalidSpec
from jobs.core.scheduling import MOST_SECONDS, Scheduling, elastic_demand, gang_demand
from jobs.core.states import JobState
from jobs.models import Job
from jobs.services.lifecycle import lock_job, move_job

FIELDS = {
    "duration_s": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": MOST_SECONDS,
        "description": "How long it runs, by the rehearsal's clock; an elastic job with one device.",
    },
    "elastic": {
        "type": "boolean",
        "default": False,
        "description": "Runs with one device and takes more, up to `devices`, like a study.",
    },
}
SPEC = {
    "type": "object",
    "properties": FIELDS,
    "required": ["duration_s"],
    "additionalProperties": False,
}


class RehearsalHandler:
    """What the queue needs to know about rehearsal jobs."""

    def check(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the complete spec; raise InvalidSpec with a pointer for every fault."""
        faults = [
            (f"/spec/{name}", f"is no known field; a rehearsal has {', '.join(FIELDS)} and scheduling fields")
            for name in spec
            if name not in FIELDS
        ]
        duration = spec.get("duration_s")
        number = isinstance(duration, int | float) and not isinstance(duration, bool)
        if duration is None:
            faults.append(("/spec/duration_s", "is required"))
        elif not number or not math.isfinite(duration) or not 0 < duration <= MOST_SECONDS:
            faults.append(("/spec/duration_s", f"must be a number of seconds above 0 to {MOST_SECONDS}"))
        if not isinstance(spec.get("elastic", False), bool):
            faults.append(("/spec/elastic", "must be true or false"))
        if faults:
            raise InvalidSpec(faults)
        return {"duration_s": float(spec["duration_s"]), "elastic": spec.get("elastic", False)}

    def demand(self, spec: Mapping[str, Any], fields: Scheduling, now_s: float) -> Demand:
        """Return what it asks of the queue; its run time is known."""
        if spec["elastic"]:
            return elastic_demand(fields, now_s, believed_s=spec["duration_s"])
        return gang_demand(fields, now_s, believed_s=spec["duration_s"])

    def created(self, job: Job) -> None:
        """Nothing beside the job itself."""

    def resumed(self, job: Job) -> None:
        """Nothing to prepare: what it has run counts on."""

    def wake(self, job: Job) -> None:
        """Nobody works on it: the tick starts and ends it."""


def begin(job: Job) -> None:
    """Start a rehearsal job that the queue has given devices."""
    with transaction.atomic():
        locked = lock_job(job.pk)
        if locked.state == JobState.QUEUED:
            move_job(locked, JobState.RUNNING, substate="simulated")


def leave(job: Job) -> None:
    """Leave at once, as if the state had been saved; what was run counts on."""
    with transaction.atomic():
        locked = lock_job(job.pk)
        if vacate(job.pk) and locked.state == JobState.RUNNING:
            move_job(
                locked, JobState.QUEUED, substate="preempted", reason="its devices were needed elsewhere"
            )


def give_back() -> bool:
    """Leave the devices that elastic rehearsal jobs have to give back; return whether there were any."""
    leaving: dict[UUID, list[UUID]] = {}
    rows = Allotment.objects.filter(state=AllotmentState.LEAVING, entry__is_simulated=True)
    for job_id, device_id in rows.filter(entry__state=EntryState.RUNNING).values_list("entry", "device"):
        leaving.setdefault(job_id, []).append(device_id)
    for job_id, device_ids in leaving.items():
        release_devices(job_id, device_ids)
    return bool(leaving)


def end_due() -> int:
    """End the rehearsal jobs that have run their time, or into their limit; return how many."""
    speed = coordinator_of(ClusterName.REHEARSAL).clock_speed
    now = timezone.now()
    running = QueueEntry.objects.filter(is_simulated=True, state=EntryState.RUNNING)
    ended = 0
    specs = dict(Job.objects.filter(pk__in=running.values("job_id")).values_list("pk", "spec"))
    for entry in running.prefetch_related("allotments__device"):
        spec = specs.get(entry.job_id)
        if spec is None or entry.started_at is None:
            continue
        done = _after(entry.done_at or entry.started_at, _left_s(entry, spec) / speed)
        limit_s = entry.demand["limit_s"]
        over = _after(entry.started_at, (limit_s - entry.executed_s) / speed) if limit_s else None
        end = min(done, over) if over is not None else done
        if end <= now:
            ended += _end(entry, end, in_time=over is None or done <= over)
    return ended


def _after(since: datetime, seconds: float) -> datetime:
    return since + timedelta(seconds=min(max(seconds, 0.0), MOST_SECONDS))


def _left_s(entry: QueueEntry, spec: Mapping[str, Any]) -> float:
    """Return how long the work that was left when it was last counted takes, on the rehearsal's clock."""
    rows = [row for row in entry.allotments.all() if row.state != AllotmentState.KEPT]
    slices = [Slice("", row.device.index, row.milli) for row in rows]
    pace = pace_of(demand_from_json(entry.demand), rows[0].device.kind if rows else "", slices)
    return (float(spec["duration_s"]) - entry.done_s) / pace if pace else math.inf


def _end(entry: QueueEntry, end: Any, *, in_time: bool) -> int:
    with transaction.atomic():
        job = lock_job(entry.job_id)
        if job.state != JobState.RUNNING:
            return 0
        leave_queue(job.pk, at=end)
        if job.cancel_asked_at is not None:
            move_job(job, JobState.CANCELLED, reason=job.reason)
        elif in_time:
            move_job(job, JobState.COMPLETED)
        else:
            move_job(job, JobState.FAILED, reason=f"ran into its limit of {entry.demand['limit_s']:g} s")
    return 1


def end_cancelled() -> None:
    """End the running rehearsal jobs that somebody wants cancelled."""
    asked = Job.objects.filter(kind="rehearsal", state=JobState.RUNNING, cancel_asked_at__isnull=False)
    for job_id in asked.values_list("pk", flat=True):
        with transaction.atomic():
            job = lock_job(job_id)
            if job.state == JobState.RUNNING:
                move_job(job, JobState.CANCELLED, reason=job.reason)
