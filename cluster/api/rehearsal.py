"""The rehearsal cluster: simulated devices behind the same queue."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.caller import actor_of
from cluster.api.quotas import QUOTA_BODY
from cluster.api.view import ApiView
from cluster.core.bodies import FASTEST, read_rehearsal
from cluster.core.policies import LIVE
from cluster.core.roles import Permission
from cluster.queries import rehearsal_facts
from cluster.services.rehearsal_cluster import load_rehearsal, remove_rehearsal

BODY = {
    "type": "object",
    "properties": {
        "nodes": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1, "maxLength": 150},
                    "count": {"type": "integer", "minimum": 1, "maximum": 20_000},
                    "devices": {"type": "integer", "minimum": 1, "maximum": 1024, "default": 8},
                    "kind": {"type": "string", "minLength": 1, "maxLength": 100},
                    "memory_bytes": {"type": "integer", "minimum": 0, "maximum": 2**60},
                    "domains": {"type": "object", "additionalProperties": {"type": "string"}},
                },
                "required": ["name", "kind"],
                "additionalProperties": False,
            },
        },
        "clock_speed": {"type": "number", "minimum": 0.01, "maximum": FASTEST, "default": 1},
        "teams": {"type": "object", "additionalProperties": QUOTA_BODY},
        "policy": {"enum": list(LIVE)},
        "rules": {"type": "object"},
    },
    "required": ["nodes"],
    "additionalProperties": False,
}


class RehearsalAnswer(serializers.Serializer[Any]):
    """The rehearsal cluster; everything in it is simulated."""

    nodes = serializers.IntegerField()
    devices = serializers.DictField(child=serializers.IntegerField(), help_text="by kind")
    clock_speed = serializers.FloatField()
    jobs = serializers.IntegerField(help_text="rehearsal jobs that wait or run")
    warnings = serializers.ListField(child=serializers.CharField())


class Rehearsal(ApiView):
    """The rehearsal cluster."""

    needs = {"PUT": Permission.ADMINISTER, "DELETE": Permission.ADMINISTER}

    @extend_schema(operation_id="readRehearsal", responses={200: RehearsalAnswer})
    def get(self, request: Request) -> Response:
        """Read how large the rehearsal cluster is."""
        return Response({**rehearsal_facts(), "warnings": []})

    @extend_schema(
        operation_id="loadRehearsal",
        request={"application/json": BODY, "application/yaml": BODY},
        responses={200: RehearsalAnswer},
    )
    def put(self, request: Request) -> Response:
        """Put up a rehearsal cluster in place of any earlier one."""
        warnings = load_rehearsal(body=read_rehearsal(request.data), actor=actor_of(request))
        return Response({**rehearsal_facts(), "warnings": warnings})

    @extend_schema(operation_id="removeRehearsal", responses={204: None})
    def delete(self, request: Request) -> Response:
        """Take the rehearsal cluster away."""
        remove_rehearsal(actor=actor_of(request))
        return Response(status=204)
