"""Jobs: submit, list, read, cancel, resume."""

from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiTypes, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.caller import actor_of, bound_team, demand, teams_allowing, user_of, visible_teams
from cluster.api.conditions import seen_version
from cluster.api.lists import Column, Order, list_answer, page_of
from cluster.api.query import CURSOR, LIMIT, some_of, text
from cluster.api.view import ApiView
from cluster.core.keyset import read_time, read_uuid
from cluster.core.roles import Permission
from cluster.models import Team
from jobs.api.answers import JobAnswer, job_answer, job_response
from jobs.api.bodies import describe_spec
from jobs.core.body import parse_body
from jobs.core.errors import InvalidSpec
from jobs.core.states import JobKind, JobState
from jobs.models import Job
from jobs.queries import jobs_for
from jobs.services import rehearsals
from jobs.services.lifecycle import cancel_job, resume_job
from jobs.services.submission import submit_job

describe_spec(JobKind.REHEARSAL, rehearsals.SPEC)

NEWEST = Order(
    "jobs", (Column("created_at", read_time, descending=True), Column("id", read_uuid, descending=True))
)


def jobs_of(request: Request) -> QuerySet[Job]:
    """Return the jobs that the caller may see."""
    return jobs_for(user_of(request), team_id=bound_team(request))


def job_or_404(request: Request, job_id: UUID) -> Job:
    """Return a job that the caller may see; everything else does not exist."""
    return get_object_or_404(jobs_of(request), pk=job_id)


class Jobs(ApiView):
    """The caller's jobs."""

    needs = {"POST": Permission.SUBMIT}
    parameters = {
        "GET": (
            some_of("state", "Only jobs in these states.", JobState),
            some_of("kind", "Only jobs of these kinds.", JobKind),
            text("team", "Only jobs of the team with this slug."),
            text("owner", "Only jobs of the person with this name."),
            text("name", "Only jobs whose name contains this."),
            LIMIT,
            CURSOR,
        )
    }

    @extend_schema(operation_id="listJobs", responses={200: page_of(JobAnswer)})
    def get(self, request: Request) -> Response:
        """List jobs, newest first."""
        rows = jobs_of(request)
        fields = {"state": "state__in", "kind": "kind__in", "team": "team__slug", "owner": "owner__username"}
        for name, lookup in {**fields, "name": "name__icontains"}.items():
            if self.query[name]:
                rows = rows.filter(**{lookup: self.query[name]})
        return list_answer(request, rows, NEWEST, self.query, lambda job: job_answer(request, job))

    @extend_schema(operation_id="submitJob", request=OpenApiTypes.OBJECT, responses={202: JobAnswer})
    def post(self, request: Request) -> Response:
        """Submit a job. It is accepted at once and done by and by; follow it under `Location`."""
        body = parse_body(request.data)
        team = team_for(request, body.team)
        demand(request, Permission.SUBMIT, team.pk)
        job = submit_job(body=body, team=team, owner=user_of(request), actor=actor_of(request))
        return job_response(request, job, status=202)


def team_for(request: Request, slug: str | None) -> Team:
    """Return the team that a new job belongs to; raise InvalidSpec where that is not clear."""
    if slug is not None:
        team = visible_teams(request).filter(slug=slug).first()
        if team is None:
            raise InvalidSpec([("/team", f"you have no team '{slug}'")])
        return team
    teams = list(teams_allowing(request, Permission.SUBMIT).order_by("slug")[:20])
    if len(teams) != 1:
        names = ", ".join(team.slug for team in teams) or "you have none in which you may submit"
        raise InvalidSpec([("/team", f"say for which team: {names}")])
    return teams[0]


class OneJob(ApiView):
    """One job."""

    @extend_schema(operation_id="readJob", responses={200: JobAnswer})
    def get(self, request: Request, job_id: UUID) -> Response:
        """Read a job."""
        return job_response(request, job_or_404(request, job_id))


class JobMove(ApiView):
    """What a person can ask of a job."""

    needs = {"POST": Permission.SUBMIT}

    def job(self, request: Request, job_id: UUID) -> Job:
        """Return the job if the caller may act on it."""
        no_body(request)
        job = job_or_404(request, job_id)
        demand(request, Permission.SUBMIT, job.team_id)
        return job


class Cancel(JobMove):
    """Ending a job before its time."""

    @extend_schema(operation_id="cancelJob", request=None, responses={202: JobAnswer})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Cancel a job. A running one ends as soon as its driver has let go."""
        job = self.job(request, job_id)
        seen = seen_version(request, job.version)
        cancel_job(job_id=job.pk, actor=actor_of(request), seen_version=seen)
        return job_response(request, job_or_404(request, job_id), status=202)


class Resume(JobMove):
    """Going on with a job that ended too early."""

    @extend_schema(operation_id="resumeJob", request=None, responses={202: JobAnswer})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Queue a failed or cancelled job again; what it finished stays finished."""
        job = self.job(request, job_id)
        seen = seen_version(request, job.version)
        resume_job(job_id=job.pk, actor=actor_of(request), seen_version=seen)
        return job_response(request, job_or_404(request, job_id), status=202)


def no_body(request: Request) -> None:
    """Refuse fields where none are read."""
    if request.data:
        raise InvalidSpec([("", "this address takes no body")])
