"""Whose training job, incident or plan it is: foreign ones are not there, and a role too low is refused."""

from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest

from cluster.core.roles import Permission, allows
from cluster.models import User
from cluster.queries import role_in
from jobs.models import Job, Reconfiguration
from telemetry.models import Verdict
from telemetry.queries.incidents import reconfigurations_for, verdicts_for
from telemetry.queries.training import training_jobs


def training_for(request: HttpRequest, job_id: UUID) -> Job:
    """Return a training job its reader may see; anything else is 404."""
    job = training_jobs(request.user).filter(pk=job_id).first()
    if job is None:
        raise Http404("There is no such training job, or it belongs to a team you are not in.")
    return job


def verdict_for(request: HttpRequest, verdict_id: UUID) -> Verdict:
    """Return a verdict on a job of the reader's teams; anything else is 404."""
    verdict = verdicts_for(request.user).filter(pk=verdict_id).first()
    if verdict is None:
        raise Http404("There is no such incident, or it belongs to a team you are not in.")
    return verdict


def reconfiguration_for(request: HttpRequest, reconfiguration_id: UUID) -> Reconfiguration:
    """Return a plan for a job of the reader's teams; anything else is 404."""
    row = reconfigurations_for(request.user).filter(pk=reconfiguration_id).first()
    if row is None:
        raise Http404("There is no such plan, or it belongs to a team you are not in.")
    return row


def may(request: HttpRequest, team_id: UUID, permission: Permission) -> bool:
    """Whether the reader's role in a team is enough."""
    return allows(role_in(request.user, team_id), permission)


def demand(request: HttpRequest, team_id: UUID, permission: Permission) -> None:
    """Refuse a reader whose role is too low."""
    if not may(request, team_id, permission):
        raise PermissionDenied("Your role in this team does not allow this.")


def person(request: HttpRequest) -> User:
    """Return the signed-in person."""
    if not isinstance(request.user, User):
        raise PermissionDenied("Sign in first.")
    return request.user
