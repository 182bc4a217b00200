"""Submitting jobs."""

from typing import Any
from uuid import UUID

from django.db import transaction

from cluster.models import Team, User
from jobs.core.body import JobBody
from jobs.models import Job
from jobs.services.demands import kept_on_rerun, queue_job, read_spec
from jobs.services.kinds import handler_of
from jobs.services.lifecycle import tell
from journal.services import audit


def check_spec(body: JobBody) -> dict[str, Any]:
    """Return the body's spec with every default filled in; raise InvalidSpec naming each fault."""
    return read_spec(body.kind, body.spec)[1]


@transaction.atomic
def submit_job(*, body: JobBody, team: Team, owner: User, actor: str, rerun_of: UUID | None = None) -> Job:
    """Create a queued job, tell its streams, and ring the coordinator, all or nothing.

    A job that is run again asks of the queue what the earlier one did, as far as the body says nothing else.

    Raises InvalidSpec for a body with faults, and for a job that could never run here.
    """
    handler = handler_of(body.kind)
    declared, spec = read_spec(body.kind, body.spec)
    if rerun_of is not None:
        declared = kept_on_rerun(rerun_of, body.kind) | declared
    job = Job.objects.create(
        kind=body.kind,
        name=body.name or str(spec.get("workload") or spec.get("program") or body.kind),
        team=team,
        owner=owner,
        spec=spec,
        objective=body.objective,
        rerun_of_id=rerun_of,
    )
    handler.created(job)
    queue_job(job, declared, strict=True)
    tell(job)
    audit(
        actor=actor,
        action="job.submit",
        target=f"job:{job.pk}",
        team_id=team.pk,
        detail={"kind": job.kind, "name": job.name},
    )
    return job
