"""Asking for a transfer report."""

from uuid import UUID

from django.db import transaction
from django.utils import timezone

from jobs.core.errors import JobError
from jobs.core.states import JobState
from jobs.models import Job
from jobs.services.lifecycle import lock_job
from journal.services import audit
from tuning.models import Study


@transaction.atomic
def ask_transfer_check(*, job_id: UUID, actor: str, seen_version: int | None = None) -> Job:
    """Have a study's driver make a transfer report on the next free device.

    Raises JobError for a study that is over, or whose trials are full models.
    """
    job = lock_job(job_id, seen_version=seen_version)
    if job.state not in (JobState.QUEUED, JobState.RUNNING):
        raise JobError(f"the study is {job.state}, and only one that runs or waits can be checked")
    if job.spec.get("scaling") == 1:
        raise JobError("its trials are full models, so nothing has to transfer")
    Study.objects.filter(pk=job.pk).update(transfer_asked_at=timezone.now())
    audit(actor=actor, action="study.check_transfer", target=f"job:{job.pk}", team_id=job.team_id)
    return job
