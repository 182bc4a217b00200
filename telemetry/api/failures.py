"""Failure events: what broke, when, and where."""

from typing import Any

from django.db.models import Q
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.lists import Column, Order, list_answer, page_of
from cluster.api.query import CURSOR, LIMIT, identifier, text
from cluster.api.view import ApiView
from cluster.core.keyset import read_time, read_uuid
from jobs.api.jobs import jobs_of
from telemetry.models import FailureEvent

NEWEST = Order(
    "failures", (Column("at", read_time, descending=True), Column("id", read_uuid, descending=True))
)


class FailureAnswer(serializers.Serializer[Any]):
    """Something that broke."""

    id = serializers.UUIDField()
    kind = serializers.CharField()
    at = serializers.DateTimeField()
    job = serializers.UUIDField(allow_null=True)
    device = serializers.UUIDField(allow_null=True)
    device_label = serializers.CharField(allow_null=True)
    message = serializers.CharField()
    detail = serializers.DictField()


def failure_answer(event: FailureEvent) -> dict[str, Any]:
    """Return a failure event as the API shows it."""
    return {
        "id": str(event.pk),
        "kind": event.kind,
        "at": event.at,
        "job": str(event.job_id) if event.job_id else None,
        "device": str(event.device_id) if event.device_id else None,
        "device_label": str(event.device) if event.device else None,
        "message": event.message,
        "detail": event.detail,
    }


class FailureEvents(ApiView):
    """What broke: in the caller's jobs, and on devices while no job was concerned."""

    parameters = {
        "GET": (
            text("kind", "Only failures of this kind."),
            identifier("job", "Only failures of this job."),
            identifier("device", "Only failures of this device."),
            LIMIT,
            CURSOR,
        )
    }

    @extend_schema(operation_id="listFailureEvents", responses={200: page_of(FailureAnswer)})
    def get(self, request: Request) -> Response:
        """List failure events, newest first."""
        seen = Q(job__isnull=True) | Q(job__in=jobs_of(request).select_related(None))
        rows = FailureEvent.objects.filter(seen).select_related("device__node")
        for name, lookup in (("kind", "kind"), ("job", "job_id"), ("device", "device_id")):
            if self.query[name]:
                rows = rows.filter(**{lookup: self.query[name]})
        return list_answer(request, rows, NEWEST, self.query, failure_answer)
