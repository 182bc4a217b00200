"""Registered workloads: what a study can tune here."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.lists import Column, Order, list_answer, page_of
from cluster.api.query import CURSOR, LIMIT
from cluster.api.view import ApiView
from cluster.core.keyset import read_text
from tuning.models import Workload

BY_NAME = Order("workloads", (Column("name", read_text),))
FACTS = ("kind", "description", "space", "metric", "mode", "epochs", "batch_size", "parameters", "samples")


class WorkloadAnswer(serializers.Serializer[Any]):
    """A workload; its facts are null where it cannot be loaded, and `error` says why."""

    name = serializers.CharField()
    available = serializers.BooleanField()
    error = serializers.CharField(allow_null=True)
    kind = serializers.CharField(allow_null=True)
    description = serializers.CharField(allow_null=True)
    space = serializers.DictField(allow_null=True)
    metric = serializers.CharField(allow_null=True)
    mode = serializers.ChoiceField(["min", "max"], allow_null=True)
    epochs = serializers.IntegerField(allow_null=True)
    batch_size = serializers.IntegerField(allow_null=True)
    parameters = serializers.DictField(allow_null=True)
    samples = serializers.IntegerField(allow_null=True)


def workload_answer(workload: Workload) -> dict[str, Any]:
    """Return a workload as the API shows it."""
    facts = {name: workload.description.get(name) for name in FACTS}
    return {
        "name": workload.name,
        "available": workload.is_available,
        "error": workload.error or None,
        **facts,
    }


class Workloads(ApiView):
    """All registered workloads."""

    parameters = {"GET": (LIMIT, CURSOR)}

    @extend_schema(operation_id="listWorkloads", responses={200: page_of(WorkloadAnswer)})
    def get(self, request: Request) -> Response:
        """List workloads by name."""
        return list_answer(request, Workload.objects.all(), BY_NAME, self.query, workload_answer)


class OneWorkload(ApiView):
    """One workload."""

    @extend_schema(operation_id="readWorkload", responses={200: WorkloadAnswer})
    def get(self, request: Request, name: str) -> Response:
        """Read a workload: its space, its metric, its budget."""
        workload = Workload.objects.filter(name=name).first() if "\0" not in name else None
        if workload is None:
            raise Http404("no such workload is registered here")
        return Response(workload_answer(workload))
