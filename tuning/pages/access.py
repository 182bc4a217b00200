"""Whose study it is: foreign ones are not there, and a role too low is refused."""

from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest

from cluster.core.roles import Permission, allows
from cluster.queries import role_in
from jobs.core.states import JobKind
from jobs.models import Job
from jobs.queries import jobs_for


def study_for(request: HttpRequest, job_id: UUID) -> Job:
    """Return a study its reader may see; anything else is 404."""
    job = jobs_for(request.user).filter(kind=JobKind.STUDY, study__isnull=False, pk=job_id).first()
    if job is None:
        raise Http404("There is no such study, or it belongs to a team you are not in.")
    return job


def may(request: HttpRequest, job: Job, permission: Permission) -> bool:
    """Whether the reader's role in the study's team is enough."""
    return allows(role_in(request.user, job.team_id), permission)


def demand(request: HttpRequest, job: Job, permission: Permission) -> None:
    """Refuse a reader whose role is too low."""
    if not may(request, job, permission):
        raise PermissionDenied(f"Your role in {job.team.slug} does not allow this.")
