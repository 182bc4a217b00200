"""The doors through which a job's state changes."""

from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from cluster.services.queue import leave_queue
from jobs.core.errors import IllegalMove, StaleVersion
from jobs.core.states import ENDED, JobState, can_move
from jobs.models import Job
from jobs.services.demands import declared_of, queue_job
from jobs.services.kinds import handler_of
from journal.services import Fact, audit, record


def lock_job(job_id: UUID, *, seen_version: int | None = None) -> Job:
    """Lock a job's row; raise StaleVersion if the caller decided on an older one."""
    job = Job.objects.select_for_update().get(pk=job_id)
    if seen_version is not None and seen_version != job.version:
        raise StaleVersion(seen_version, job.version)
    return job


@transaction.atomic
def move_job(job: Job, new: JobState, *, substate: str = "", reason: str = "") -> None:
    """Move a job whose row we hold to its next state and tell its stream and its team's."""
    old = JobState(job.state)
    if not can_move(old, new):
        raise IllegalMove(old, new)
    job.state, job.substate, job.reason = new, substate, reason[:1000]
    now = timezone.now()
    if new is JobState.RUNNING:
        job.started_at = job.started_at or now
    job.ended_at = now if new in ENDED else None
    job.version += 1
    job.save(update_fields=["state", "substate", "reason", "started_at", "ended_at", "version"])
    if new in ENDED:
        leave_queue(job.pk)
    tell(job)


def tell(job: Job) -> None:
    """Record a job's present state on its own stream and on its team's."""
    fact = Fact("job.state", state_of(job))
    record(job.stream, [fact])
    record(f"team:{job.team_id}", [fact])


def state_of(job: Job) -> dict[str, Any]:
    """Return what events say of a job."""
    return {
        "id": str(job.pk),
        "kind": job.kind,
        "name": job.name,
        "state": job.state,
        "substate": job.substate,
        "reason": job.reason,
        "version": job.version,
        "summary": job.summary,
    }


@transaction.atomic
def cancel_job(*, job_id: UUID, actor: str, seen_version: int | None = None) -> Job:
    """Cancel a job that has not ended; a running one ends as soon as its driver has let go."""
    job = lock_job(job_id, seen_version=seen_version)
    if job.state == JobState.QUEUED:
        move_job(job, JobState.CANCELLED, reason=f"cancelled by {actor}")
    elif job.state == JobState.RUNNING:
        if job.cancel_asked_at is None:
            job.cancel_asked_at, job.substate = timezone.now(), "cancelling"
            job.reason = f"cancelled by {actor}"
            job.version += 1
            job.save(update_fields=["cancel_asked_at", "substate", "reason", "version"])
            tell(job)
    else:
        raise IllegalMove(job.state, JobState.CANCELLED)
    audit(actor=actor, action="job.cancel", target=f"job:{job.pk}", team_id=job.team_id)
    transaction.on_commit(lambda: handler_of(job.kind).wake(job))
    return job


@transaction.atomic
def resume_job(*, job_id: UUID, actor: str, seen_version: int | None = None) -> Job:
    """Queue a failed or cancelled job again; what it finished stays finished."""
    job = lock_job(job_id, seen_version=seen_version)
    # A running job may go back to the queue as well, but only its driver may send it there.
    if job.state not in (JobState.FAILED, JobState.CANCELLED):
        raise IllegalMove(job.state, JobState.QUEUED)
    job.cancel_asked_at = None
    job.save(update_fields=["cancel_asked_at"])
    move_job(job, JobState.QUEUED, reason="")
    handler_of(job.kind).resumed(job)
    queue_job(job, declared_of(job), strict=False)
    audit(actor=actor, action="job.resume", target=f"job:{job.pk}", team_id=job.team_id)
    return job
