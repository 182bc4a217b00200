"""Teams, and who the caller is."""

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.caller import token_of, user_of, visible_teams
from cluster.api.conditions import etag
from cluster.api.lists import Column, Order, list_answer, page_of
from cluster.api.query import CURSOR, LIMIT
from cluster.api.view import ApiView
from cluster.core.keyset import read_text
from cluster.core.roles import Role, Scope
from cluster.models import Membership, Team, User

BY_SLUG = Order("teams", (Column("slug", read_text),))


class TeamAnswer(serializers.Serializer[Team]):
    """A team as the caller sees it."""

    id = serializers.UUIDField()
    slug = serializers.CharField()
    name = serializers.CharField()
    role = serializers.ChoiceField([r.value for r in Role], help_text="the caller's role in it")
    version = serializers.IntegerField()


class TokenFacts(serializers.Serializer[Any]):
    """The token a request came with."""

    prefix = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField([s.value for s in Scope]))
    team = serializers.UUIDField(allow_null=True, help_text="the only team it is good for")


class MeAnswer(serializers.Serializer[Any]):
    """Who the caller is and what they may do where."""

    id = serializers.UUIDField()
    username = serializers.CharField()
    is_superuser = serializers.BooleanField()
    teams = TeamAnswer(many=True)
    token = TokenFacts(allow_null=True)


def team_answer(team: Team, roles: dict[UUID, str]) -> dict[str, Any]:
    """Return a team with the caller's role in it."""
    return {
        "id": str(team.pk),
        "slug": team.slug,
        "name": team.name,
        "role": roles.get(team.pk, Role.ADMIN.value),
        "version": team.version,
    }


def roles_of(user: User) -> dict[UUID, str]:
    """Return a person's roles by team; a superuser is admin in all of them, whatever is written."""
    if user.is_superuser:
        return {}
    return dict(Membership.objects.filter(user=user).values_list("team_id", "role"))


class Teams(ApiView):
    """The teams whose objects the caller sees."""

    parameters = {"GET": (LIMIT, CURSOR)}

    @extend_schema(operation_id="listTeams", responses={200: page_of(TeamAnswer)})
    def get(self, request: Request) -> Response:
        """List the caller's teams."""
        roles = roles_of(user_of(request))
        return list_answer(
            request, visible_teams(request), BY_SLUG, self.query, lambda team: team_answer(team, roles)
        )


class OneTeam(ApiView):
    """One team."""

    @extend_schema(operation_id="readTeam", responses={200: TeamAnswer})
    def get(self, request: Request, team_id: UUID) -> Response:
        """Read a team."""
        team = get_object_or_404(visible_teams(request), pk=team_id)
        return Response(team_answer(team, roles_of(user_of(request))), headers={"ETag": etag(team.version)})


class Me(ApiView):
    """The caller."""

    @extend_schema(operation_id="readMe", responses={200: MeAnswer})
    def get(self, request: Request) -> Response:
        """Say who the request comes from, their roles, and the limits of their token."""
        user, token = user_of(request), token_of(request)
        roles = roles_of(user)
        facts = token and {
            "prefix": token.prefix,
            "scopes": token.scopes,
            "team": str(token.team_id) if token.team_id else None,
        }
        return Response(
            {
                "id": str(user.pk),
                "username": user.get_username(),
                "is_superuser": user.is_superuser,
                "teams": [team_answer(team, roles) for team in visible_teams(request).order_by("slug")],
                "token": facts,
            }
        )
