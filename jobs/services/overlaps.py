"""Overlap jobs: checking their spec, ringing their worker, what the worker writes, fenced by its lease."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from cluster.services.leases import Held, fence
from jobs.core.overlap.spec import check_spec
from jobs.core.states import ENDED, JobState
from jobs.models import Job
from jobs.services.artifacts import store_artifact
from jobs.services.lifecycle import lock_job, move_job
from journal.services import ring

RUN = "overlap.run"
QUEUE = "tuner"
PLAN, TRACE = "overlap-plan", "overlap-trace"
_SUMMARY = (
    "program", "cluster", "tiles", "policy", "exact", "makespan", "serial_makespan", "untiled_makespan",
    "lower_bound", "exposed_comm", "compute_idle", "peak_bytes", "untiled_peak_bytes", "verification",
    "simulated", "warnings",
)  # fmt: skip


class OverlapHandler:
    """What `jobs` needs to know about overlap jobs."""

    def check(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the complete spec; raise InvalidSpec with a pointer and a sentence for every fault."""
        return check_spec(spec)

    def created(self, job: Job) -> None:
        """Nothing beside the job itself: its result is an artifact."""

    def resumed(self, job: Job) -> None:
        """Nothing to prepare: it starts again."""

    @transaction.atomic
    def wake(self, job: Job) -> None:
        """Ring a worker; it looks at the job and its lease and decides for itself."""
        Job.objects.filter(pk=job.pk).update(woken_at=timezone.now())
        ring(RUN, queue=QUEUE, args=[str(job.pk)])


@transaction.atomic
def claim_overlap(*, job_id: UUID, held: Held) -> Job | None:
    """Start a queued job or go on with a running one; None if there is nothing to do."""
    fence(held)
    job = lock_job(job_id)
    if job.cancel_asked_at is not None and job.state == JobState.RUNNING:
        move_job(job, JobState.CANCELLED, reason=job.reason)
    if job.state == JobState.QUEUED:
        move_job(job, JobState.RUNNING, substate="capturing and planning")
    if job.state != JobState.RUNNING:
        return None
    Job.objects.filter(pk=job_id).update(attempt=F("attempt") + 1)
    return job


def cancel_asked(job_id: UUID) -> bool:
    """Whether somebody wants the job to end."""
    return Job.objects.filter(pk=job_id, cancel_asked_at__isnull=False).exists()


@transaction.atomic
def finish_overlap(*, job_id: UUID, held: Held, document: Mapping[str, Any]) -> None:
    """Store the result, or why there is none, and end the job."""
    fence(held)
    job = lock_job(job_id)
    if JobState(job.state) in ENDED:
        return
    reason = document.get("refused") or document.get("error")
    if reason is not None:
        move_job(job, JobState.FAILED, reason=str(reason))
        return
    summary = {key: document[key] for key in _SUMMARY}
    plan = {key: value for key, value in document.items() if key != "trace"}
    for kind, name, content in ((PLAN, "plan.json", plan), (TRACE, "trace.json", document["trace"])):
        summary[f"{kind.removeprefix('overlap-')}_artifact"] = _stored(job, kind, name, content)
    job.summary = summary
    job.save(update_fields=["summary"])
    move_job(job, JobState.COMPLETED)


def _stored(job: Job, kind: str, name: str, content: Any) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
        return str(store_artifact(job=job, source=path, name=name, kind=kind).pk)


@transaction.atomic
def end_overlap(*, job_id: UUID, held: Held, state: JobState, reason: str) -> None:
    """End a job that has no result."""
    fence(held)
    job = lock_job(job_id)
    if JobState(job.state) not in ENDED:
        move_job(job, state, reason=reason)
