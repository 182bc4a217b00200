"""Reading telemetry: who may follow a stream, and where it stands."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AnonymousUser

from cluster.models import Team, User
from cluster.queries import fleet_snapshot, highest_role, teams_of
from jobs.models import Job
from jobs.queries import jobs_for
from telemetry.core.streams import StreamName

# Folders above register what a job of their kind shows; the job's own state is always there.
JobSnapshot = Callable[[Job], dict[str, Any]]
_job_snapshots: dict[str, JobSnapshot] = {}


def register_job_snapshot(kind: str, snapshot: JobSnapshot) -> None:
    """Add what a stream of a job of this kind says when it starts anew."""
    _job_snapshots[kind] = snapshot


def may_follow(user: User | AnonymousUser, stream: StreamName, *, team_id: UUID | None = None) -> bool:
    """Whether a person (with a token bound to a team, if given) may see a stream."""
    if stream.id is None:
        return highest_role(user) is not None
    if stream.kind == "job":
        return jobs_for(user, team_id=team_id).filter(pk=stream.id).exists()
    return teams_of(user).filter(pk=stream.id).exists() and team_id in {None, stream.id}


def snapshot_of(stream: StreamName) -> dict[str, Any]:
    """Return the present state of what a stream is about."""
    if stream.id is None:
        return fleet_snapshot()
    if stream.kind == "job":
        job = Job.objects.get(pk=stream.id)
        more = _job_snapshots.get(job.kind)
        return {"job": _job_state(job), **(more(job) if more else {})}
    team = Team.objects.get(pk=stream.id)
    return {"jobs": [_job_state(job) for job in team.jobs.order_by("-created_at")[:200]]}


def _job_state(job: Job) -> dict[str, Any]:
    fields = ("kind", "name", "state", "substate", "reason", "version", "summary")
    return {"id": str(job.pk), **{name: getattr(job, name) for name in fields}}
