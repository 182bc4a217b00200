"""A study's trials: pages, CSV, Parquet; and when they ran where."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiResponse, OpenApiTypes, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.lists import next_url, page_of
from cluster.api.query import CURSOR, LIMIT, Parameter, some_of, text
from cluster.api.view import ApiView, Download
from jobs.api.bodies import describe_spec
from jobs.api.jobs import job_or_404
from jobs.core.states import JobKind
from telemetry.queries.training_timeline import training_timeline
from tuning.core.states import TrialState
from tuning.core.study.spec import spec_schema
from tuning.queries.export import trials_csv, trials_parquet
from tuning.queries.timeline import timeline_of
from tuning.queries.trials import RANGED, filter_trials, trial_page, trial_row

describe_spec("study", spec_schema())


def _bounds() -> list[Parameter]:
    sentences = {"": "with this", "__gte": "with at least this", "__lte": "with at most this"}
    number = {"type": "number"}
    return [
        Parameter(f"{column}{bound}", f"Only trials {words} {column}.", number, str)
        for column in RANGED
        for bound, words in sentences.items()
    ]


FILTERS = (
    some_of("state", "Only trials in these states.", TrialState),
    *_bounds(),
    Parameter(
        "config.",
        "config.NAME, config.NAME__gte, config.NAME__lte: only trials with exactly, at least, at most this.",
        {"type": "object"},
        str,
        prefix=True,
    ),
)
SORT = text("sort", "A column or config.NAME, with - in front for descending; empty values come last.")
PAGING = ("sort", "limit", "cursor")


class TrialAnswer(serializers.Serializer[Any]):
    """A row of the trial table."""

    id = serializers.UUIDField()
    trial = serializers.IntegerField(help_text="its number within the study")
    config = serializers.DictField()
    metric = serializers.FloatField(allow_null=True)
    epochs = serializers.IntegerField()
    state = serializers.ChoiceField([s.value for s in TrialState])
    reason = serializers.CharField(allow_null=True)
    device_seconds = serializers.FloatField()
    started_s = serializers.FloatField(allow_null=True, help_text="since the study began")
    ended_s = serializers.FloatField(allow_null=True)


class IntervalAnswer(serializers.Serializer[Any]):
    """Something that ran on a device for a while."""

    start_s = serializers.FloatField()
    end_s = serializers.FloatField(allow_null=True, help_text="null for what still runs")
    kind = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # the word stands in the contract
    trials = serializers.ListField(child=serializers.IntegerField())


class LaneAnswer(serializers.Serializer[Any]):
    """What ran on one device, what one rank did, or what happened to a whole training job."""

    id = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # the word stands in the contract
    intervals = IntervalAnswer(many=True)


TIMELINES = {JobKind.STUDY: timeline_of, JobKind.TRAINING: training_timeline}
INTERVAL = ("start_s", "end_s", "kind", "label", "trials")


class TimelineAnswer(serializers.Serializer[Any]):
    """When what ran where, in seconds since the job began."""

    lanes = LaneAnswer(many=True)


class Trials(ApiView):
    """The trials of a study."""

    parameters = {"GET": (SORT, *FILTERS, LIMIT, CURSOR)}

    @extend_schema(
        operation_id="listTrials",
        responses={200: page_of(TrialAnswer, total=serializers.IntegerField(help_text="rows in all pages"))},
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List a study's trials, by number unless `sort` says otherwise."""
        job = job_or_404(request, job_id)
        page = trial_page(
            job,
            sort=self.query["sort"] or "number",
            filters=asked(self.query),
            cursor=self.query["cursor"],
            limit=self.query["limit"],
        )
        following = next_url(request, cursor=page.next_cursor) if page.next_cursor else None
        return Response(
            {"items": [trial_row(trial) for trial in page.items], "next": following, "total": page.total}
        )


class TrialsCsv(Download):
    """All trials of a study for a spreadsheet."""

    parameters = {"GET": FILTERS}

    @extend_schema(
        operation_id="exportTrialsCsv",
        responses={(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, "One row per trial, by number.")},
    )
    def get(self, request: Request, job_id: UUID) -> HttpResponse:
        """Export a study's trials as CSV; a text that would run as a formula gets a leading `'`."""
        job = job_or_404(request, job_id)
        content = trials_csv(job, filter_trials(job, asked(self.query)))
        return attachment(content, "text/csv; charset=utf-8", f"trials-{job.pk}.csv")


class TrialsParquet(Download):
    """All trials of a study for data tools."""

    parameters = {"GET": FILTERS}

    @extend_schema(
        operation_id="exportTrialsParquet",
        responses={
            (200, "application/vnd.apache.parquet"): OpenApiResponse(
                OpenApiTypes.BINARY, "One row per trial, by number."
            )
        },
    )
    def get(self, request: Request, job_id: UUID) -> HttpResponse:
        """Export a study's trials as Parquet, one column per hyperparameter."""
        job = job_or_404(request, job_id)
        content = trials_parquet(job, filter_trials(job, asked(self.query)))
        return attachment(content, "application/vnd.apache.parquet", f"trials-{job.pk}.parquet")


class Timeline(ApiView):
    """What a job ran where."""

    @extend_schema(operation_id="readTimeline", responses={200: TimelineAnswer})
    def get(self, request: Request, job_id: UUID) -> Response:
        """Read what a job did when: trials and targets on devices, ranks in layouts, incidents."""
        job = job_or_404(request, job_id)
        timeline = TIMELINES.get(JobKind(job.kind))
        found: dict[str, Any] = timeline(job) if timeline else {"lanes": []}
        for lane in found["lanes"]:
            lane["intervals"] = [{name: one[name] for name in INTERVAL} for one in lane["intervals"]]
        return Response(found)


def asked(query: dict[str, Any]) -> dict[str, Any]:
    """Return the filters among a request's parameters."""
    return {name: value for name, value in query.items() if value is not None and name not in PAGING}


def attachment(content: bytes, content_type: str, name: str) -> HttpResponse:
    """Return a download that no browser interprets."""
    response = HttpResponse(content, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
