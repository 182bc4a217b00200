"""A job as the API answers with it."""

from typing import Any

from django.urls import NoReverseMatch, reverse
from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.conditions import etag
from cluster.core.states import AllotmentState, EntryState
from cluster.models import QueueEntry
from cluster.queries import queue_entries
from jobs.core.states import JobKind, JobState
from jobs.models import Job


class BestAnswer(serializers.Serializer[Any]):
    """The best configuration with a full model."""

    trial = serializers.IntegerField()
    metric = serializers.FloatField(allow_null=True)
    config = serializers.DictField()


class SummaryAnswer(serializers.Serializer[Any]):
    """Figures of a job; each kind adds its own."""

    best = BestAnswer(allow_null=True)


class LinksAnswer(serializers.Serializer[Any]):
    """Where to go from a job."""

    self = serializers.URLField()
    trials = serializers.URLField()
    events = serializers.URLField()
    timeline = serializers.URLField()
    model = serializers.URLField(
        allow_null=True, help_text="the target model as safetensors, once there is one"
    )
    html = serializers.URLField(allow_null=True, help_text="the page for people, where this kind has one")


class JobQueueAnswer(serializers.Serializer[Any]):
    """Where a job stands in the queue."""

    position = serializers.IntegerField(allow_null=True, help_text="place in line; null for one set aside")
    reason = serializers.CharField()
    message = serializers.CharField()
    next_step = serializers.CharField()
    predicted_start = serializers.DateTimeField(allow_null=True, help_text="estimated")
    earliest_start = serializers.DateTimeField(allow_null=True, help_text="estimated")
    latest_start = serializers.DateTimeField(allow_null=True, help_text="estimated")
    is_simulated = serializers.BooleanField()
    evictions = serializers.IntegerField(help_text="how often it had to give way")
    devices = serializers.ListField(child=serializers.CharField(), help_text="what it holds now")


@extend_schema_serializer(component_name="Job")
class JobAnswer(serializers.Serializer[Job]):
    """A piece of work that a person or a pipeline asked for."""

    id = serializers.UUIDField()
    kind = serializers.ChoiceField([k.value for k in JobKind])
    name = serializers.CharField()
    team = serializers.CharField(help_text="the team's slug")
    owner = serializers.CharField()
    state = serializers.ChoiceField([s.value for s in JobState])
    substate = serializers.CharField(help_text="what it is at within its state; free text")
    reason = serializers.CharField(help_text="why it is in its state; may be empty")
    version = serializers.IntegerField()
    attempt = serializers.IntegerField(help_text="how many drivers have taken it up")
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    rerun_of = serializers.UUIDField(allow_null=True)
    objective = serializers.DictField(child=serializers.FloatField(), allow_null=True)
    objective_met = serializers.BooleanField(
        allow_null=True, help_text="null while there is nothing to compare"
    )
    spec = serializers.DictField()
    scheduling = serializers.DictField(help_text="scheduling fields as submitted; in lists empty")
    queue = JobQueueAnswer(allow_null=True, help_text="null in lists, and once the job has ended")
    summary = SummaryAnswer()
    links = LinksAnswer()


def job_answer(request: Request, job: Job, entry: QueueEntry | None = None) -> dict[str, Any]:
    """Return a job as the API shows it, with its place in the queue where that is known."""
    best = job.summary.get("best")
    return {
        "id": str(job.pk),
        "kind": job.kind,
        "name": job.name,
        "team": job.team.slug,
        "owner": job.owner.get_username(),
        "state": job.state,
        "substate": job.substate,
        "reason": job.reason,
        "version": job.version,
        "attempt": job.attempt,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "rerun_of": str(job.rerun_of_id) if job.rerun_of_id else None,
        "objective": job.objective,
        "objective_met": objective_met(job.objective, best),
        "spec": job.spec,
        "scheduling": entry.declared if entry else {},
        "queue": queue_answer(entry) if entry and entry.state != EntryState.ENDED else None,
        "summary": {**job.summary, "best": best},
        "links": links_of(request, job, best),
    }


def queue_answer(entry: QueueEntry) -> dict[str, Any]:
    """Return where a job stands in the queue."""
    return {
        "position": entry.position,
        "reason": entry.reason,
        "message": entry.message,
        "next_step": entry.wait.get("next_step", ""),
        "predicted_start": entry.predicted_start_at,
        "earliest_start": entry.earliest_start_at,
        "latest_start": entry.latest_start_at,
        "is_simulated": entry.is_simulated,
        "evictions": entry.evictions,
        "devices": [str(row.device) for row in entry.allotments.all() if row.state != AllotmentState.KEPT],
    }


def objective_met(objective: dict[str, float] | None, best: dict[str, Any] | None) -> bool | None:
    """Return whether the best metric reaches the objective, or None where one of them is missing."""
    metric = (best or {}).get("metric")
    if not objective or metric is None:
        return None
    ((rule, bound),) = objective.items()
    return bool(metric >= bound if rule == "at_least" else metric <= bound)


def links_of(request: Request, job: Job, best: dict[str, Any] | None) -> dict[str, str | None]:
    """Return the addresses of what belongs to a job."""
    here = request.build_absolute_uri(reverse("api-job", args=[job.pk]))
    model = (best or {}).get("model")
    return {
        "self": here,
        "trials": f"{here}/trials",
        "events": f"{here}/events",
        "timeline": f"{here}/timeline",
        "model": request.build_absolute_uri(reverse("api-artifact", args=[model])) if model else None,
        "html": page_of_job(request, job),
    }


def page_of_job(request: Request, job: Job) -> str | None:
    """Return the page for people; each kind of job names its page after itself."""
    try:
        return request.build_absolute_uri(reverse(job.kind, args=[job.pk]))
    except NoReverseMatch:
        return None


def job_response(request: Request, job: Job, status: int = 200) -> Response:
    """Return the answer about one job, with its version as entity tag and its address."""
    body = job_answer(request, job, queue_entries(list(EntryState)).filter(pk=job.pk).first())
    headers = {"ETag": etag(job.version)}
    if status == 202:
        headers["Location"] = str(body["links"]["self"])
    return Response(body, status=status, headers=headers)
