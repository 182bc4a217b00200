"""Verdicts: what is wrong with which rank or device of a training job, on which evidence."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.conditions import etag
from cluster.api.lists import Column, Order, list_answer, page_of
from cluster.api.query import CURSOR, LIMIT, identifier, some_of
from cluster.api.view import ApiView
from cluster.core.keyset import read_time, read_uuid
from jobs.api.jobs import jobs_of
from telemetry.core.states import VerdictKind, VerdictState
from telemetry.models import Verdict

NEWEST = Order(
    "verdicts", (Column("opened_at", read_time, descending=True), Column("id", read_uuid, descending=True))
)


class EvidenceAnswer(serializers.Serializer[Any]):
    """One test's result: its value, the threshold it was held against, on how many samples."""

    test = serializers.CharField()
    value = serializers.FloatField()
    threshold = serializers.FloatField()
    samples = serializers.IntegerField()


class SubjectAnswer(serializers.Serializer[Any]):
    """What a verdict is about; null where a field does not apply."""

    rank = serializers.IntegerField(allow_null=True)
    replica = serializers.IntegerField(allow_null=True)
    stage = serializers.IntegerField(allow_null=True)
    node = serializers.CharField(allow_null=True)


class VerdictAnswer(serializers.Serializer[Verdict]):
    """An incident of a training job."""

    id = serializers.UUIDField()
    job = serializers.UUIDField()
    device = serializers.UUIDField(allow_null=True)
    device_label = serializers.CharField(allow_null=True)
    kind = serializers.ChoiceField([k.value for k in VerdictKind])
    state = serializers.ChoiceField([s.value for s in VerdictState])
    subject = SubjectAnswer()
    slowdown = serializers.FloatField(allow_null=True, help_text="time over healthy time")
    confidence = serializers.FloatField()
    first_step = serializers.IntegerField(allow_null=True)
    detected_step = serializers.IntegerField(allow_null=True)
    evidence = EvidenceAnswer(many=True)
    series = serializers.DictField(help_text="raw: own seconds per step of the subject and of its peers")
    reason = serializers.CharField(help_text="why it was cleared; may be empty")
    answer = serializers.CharField(help_text="what the recovery loop made of it; may be empty")
    version = serializers.IntegerField()
    first_sample_at = serializers.DateTimeField(allow_null=True)
    opened_at = serializers.DateTimeField()
    cleared_at = serializers.DateTimeField(allow_null=True)


SAME = (
    "kind", "state", "subject", "confidence", "first_step", "detected_step", "evidence", "series", "reason",
    "answer", "version", "first_sample_at", "opened_at", "cleared_at",
)  # fmt: skip


def verdict_answer(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as the API shows it."""
    return {
        "id": str(verdict.pk),
        "job": str(verdict.job_id),
        "device": str(verdict.device_id) if verdict.device_id else None,
        "device_label": str(verdict.device) if verdict.device else None,
        "slowdown": verdict.factor,
        **{name: getattr(verdict, name) for name in SAME},
    }


def verdicts_of(request: Request) -> QuerySet[Verdict]:
    """Return the verdicts on jobs that the caller may see."""
    jobs = jobs_of(request).select_related(None)
    return Verdict.objects.filter(job__in=jobs).select_related("device__node")


class Verdicts(ApiView):
    """Incidents of the caller's training jobs."""

    parameters = {
        "GET": (
            some_of("state", "Only verdicts in these states.", VerdictState),
            some_of("kind", "Only verdicts of these kinds.", VerdictKind),
            identifier("job", "Only verdicts on this job."),
            identifier("device", "Only verdicts on this device."),
            LIMIT,
            CURSOR,
        )
    }

    @extend_schema(operation_id="listVerdicts", responses={200: page_of(VerdictAnswer)})
    def get(self, request: Request) -> Response:
        """List verdicts, newest first."""
        rows = verdicts_of(request)
        fields = {"state": "state__in", "kind": "kind__in", "job": "job_id", "device": "device_id"}
        for name, lookup in fields.items():
            if self.query[name]:
                rows = rows.filter(**{lookup: self.query[name]})
        return list_answer(request, rows, NEWEST, self.query, verdict_answer)


class OneVerdict(ApiView):
    """One incident."""

    @extend_schema(operation_id="readVerdict", responses={200: VerdictAnswer})
    def get(self, request: Request, verdict_id: UUID) -> Response:
        """Read a verdict."""
        verdict = get_object_or_404(verdicts_of(request), pk=verdict_id)
        return Response(verdict_answer(verdict), headers={"ETag": etag(verdict.version)})
