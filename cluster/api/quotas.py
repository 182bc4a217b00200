"""What a team is guaranteed and may borrow."""

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.caller import actor_of, demand, visible_teams
from cluster.api.conditions import etag, seen_version
from cluster.api.view import ApiView
from cluster.core.bodies import quota_rows, read_quota
from cluster.core.requests import MOST_DEVICES
from cluster.core.roles import Permission
from cluster.models import Quota, Team
from cluster.queries import held_by_team
from cluster.services.quotas import overbooked, quota_of, set_quota

AMOUNT = {"type": "number", "minimum": 0, "maximum": MOST_DEVICES, "multipleOf": 0.001}
NULLABLE_AMOUNT = {**AMOUNT, "type": ["number", "null"]}
QUOTA_BODY = {
    "type": "object",
    "properties": {
        "shares": {"type": "integer", "minimum": 0, "maximum": 1_000_000, "default": 1},
        "parent": {"type": ["string", "null"], "description": "slug of the team above it"},
        "quotas": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "kind": {"type": "string", "minLength": 1, "maxLength": 100},
                    "guaranteed": {**AMOUNT, "description": "devices it may always have"},
                    "borrowable": {**NULLABLE_AMOUNT, "description": "how much above that; null: no limit"},
                    "lendable": {**NULLABLE_AMOUNT, "description": "how much others may use; null: all"},
                },
                "required": ["kind"],
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}


class KindQuota(serializers.Serializer[Any]):
    """Quota of one kind of device, in devices."""

    kind = serializers.CharField()
    guaranteed = serializers.FloatField()
    borrowable = serializers.FloatField(allow_null=True, help_text="above the guarantee; null is no limit")
    lendable = serializers.FloatField(allow_null=True, help_text="of the guarantee; null is all of it")


class HeldAnswer(serializers.Serializer[Any]):
    """What the team's jobs hold now."""

    kind = serializers.CharField()
    is_simulated = serializers.BooleanField()
    devices = serializers.FloatField()


class QuotaAnswer(serializers.Serializer[Any]):
    """A team's quota."""

    team = serializers.CharField()
    shares = serializers.IntegerField(help_text="weight among its siblings")
    parent = serializers.CharField(allow_null=True)  # type: ignore[assignment]  # a word of the API
    quotas = KindQuota(many=True)
    held = HeldAnswer(many=True)
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="guarantees beyond what there is"
    )
    version = serializers.IntegerField()


def quota_answer(team: Team, quota: Quota) -> dict[str, Any]:
    """Return a team's quota as the API shows it."""
    return {
        "team": team.slug,
        "shares": quota.shares,
        "parent": quota.parent.slug if quota.parent else None,
        "quotas": quota_rows(quota.kinds),
        "held": held_by_team(team.pk),
        "warnings": overbooked(),
        "version": quota.version,
    }


class TeamQuota(ApiView):
    """A team's quota."""

    needs = {"PUT": Permission.OPERATE}

    @extend_schema(operation_id="readQuota", responses={200: QuotaAnswer})
    def get(self, request: Request, team_id: UUID) -> Response:
        """Read what a team is guaranteed, may borrow and lends, and what it holds now."""
        team = get_object_or_404(visible_teams(request), pk=team_id)
        quota = quota_of(team.pk)
        return Response(quota_answer(team, quota), headers={"ETag": etag(quota.version)})

    @extend_schema(
        operation_id="setQuota", request={"application/json": QUOTA_BODY}, responses={200: QuotaAnswer}
    )
    def put(self, request: Request, team_id: UUID) -> Response:
        """Set a team's quota. It holds at once; nobody is stopped before somebody is owed devices."""
        team = get_object_or_404(visible_teams(request), pk=team_id)
        demand(request, Permission.OPERATE, team.pk)
        seen = seen_version(request, quota_of(team.pk).version, required=True)
        body = read_quota(request.data)
        quota, _ = set_quota(team_id=team.pk, body=body, actor=actor_of(request), seen_version=seen)
        return Response(quota_answer(team, quota), headers={"ETag": etag(quota.version)})
