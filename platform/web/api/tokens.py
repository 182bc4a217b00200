"""API tokens and WebSocket tickets over the API."""

from typing import Any
from uuid import UUID

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.bodies import StrictBody
from cluster.api.caller import actor_of, bound_team, user_of, visible_teams
from cluster.api.lists import Column, Order, list_answer, page_of
from cluster.api.query import CURSOR, LIMIT
from cluster.api.view import ApiView
from cluster.core.keyset import read_time, read_uuid
from cluster.core.roles import Scope
from jobs.api.jobs import no_body
from web.errors import InvalidToken
from web.models import ApiToken
from web.services.one_time import LIFE, TICKET, issue_secret
from web.services.tokens import LONGEST_NAME, create_token, revoke_token

NEWEST = Order(
    "tokens", (Column("created_at", read_time, descending=True), Column("id", read_uuid, descending=True))
)
SCOPES = [scope.value for scope in Scope]


class TokenAnswer(serializers.Serializer[ApiToken]):
    """A token, without its secret."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="the public beginning of the token")
    scopes = serializers.ListField(child=serializers.ChoiceField(SCOPES))
    team = serializers.CharField(allow_null=True, help_text="slug of the only team it is good for, or null")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    last_used_ip = serializers.CharField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class NewTokenAnswer(TokenAnswer):
    """A fresh token; its text is shown this once."""

    token = serializers.CharField(help_text="the whole token: keep it now, it is never shown again")


class TokenBody(StrictBody):
    """What a new token shall be good for."""

    knows = "a token has"

    name = serializers.CharField(max_length=LONGEST_NAME)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(SCOPES), allow_empty=False, max_length=len(SCOPES)
    )
    team = serializers.CharField(max_length=50, required=False, allow_null=True, default=None)
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)


class TicketAnswer(serializers.Serializer[Any]):
    """A ticket for one WebSocket."""

    ticket = serializers.CharField(help_text="good once: wss://…/ws/streams/{stream}?ticket=…")
    expires_at = serializers.DateTimeField()


def token_answer(token: ApiToken) -> dict[str, Any]:
    """Return a token as the API shows it."""
    fields = (
        "name",
        "prefix",
        "scopes",
        "created_at",
        "expires_at",
        "last_used_at",
        "last_used_ip",
        "revoked_at",
    )
    answer = {name: getattr(token, name) for name in fields}
    return {"id": str(token.pk), "team": token.team.slug if token.team else None, **answer}


def own_token(request: Request) -> ApiToken | None:
    """Return the token that the request came with."""
    return request.auth if isinstance(request.auth, ApiToken) else None


def own_tokens(request: Request) -> Any:
    """Return the caller's tokens; a token bound to a team sees those of that team only."""
    tokens = ApiToken.objects.filter(user=user_of(request)).select_related("team")
    bound = bound_team(request)
    return tokens.filter(team_id=bound) if bound else tokens


class Tokens(ApiView):
    """The caller's tokens."""

    parameters = {"GET": (LIMIT, CURSOR)}

    @extend_schema(operation_id="listTokens", responses={200: page_of(TokenAnswer)})
    def get(self, request: Request) -> Response:
        """List the caller's tokens, newest first."""
        return list_answer(request, own_tokens(request), NEWEST, self.query, token_answer)

    @extend_schema(operation_id="createToken", request=TokenBody, responses={201: NewTokenAnswer})
    def post(self, request: Request) -> Response:
        """Create a token. A token makes others only with the scope `admin`, and none that can do more."""
        body = TokenBody(data=request.data)
        body.is_valid(raise_exception=True)
        wanted = body.validated_data
        team = None
        if wanted["team"] is not None:
            team = visible_teams(request).filter(slug=wanted["team"]).first()
            if team is None:
                raise InvalidToken([("/team", f"you have no team '{wanted['team']}'")])
        made = create_token(
            user=user_of(request),
            actor=actor_of(request),
            name=wanted["name"],
            scopes=wanted["scopes"],
            team=team,
            expires_at=wanted["expires_at"],
            by=own_token(request),
        )
        headers = {"Location": request.build_absolute_uri(f"{request.path}/{made.token.pk}")}
        return Response({**token_answer(made.token), "token": made.text}, status=201, headers=headers)


class OneToken(ApiView):
    """One of the caller's tokens."""

    @extend_schema(operation_id="readToken", responses={200: TokenAnswer})
    def get(self, request: Request, token_id: UUID) -> Response:
        """Read a token, without its secret."""
        return Response(token_answer(self._find(request, token_id)))

    @extend_schema(operation_id="revokeToken", responses={204: None})
    def delete(self, request: Request, token_id: UUID) -> Response:
        """Revoke a token at once and for good."""
        self._find(request, token_id)
        revoke_token(user=user_of(request), token_id=token_id, actor=actor_of(request))
        return Response(status=204)

    def _find(self, request: Request, token_id: UUID) -> ApiToken:
        token: ApiToken | None = own_tokens(request).filter(pk=token_id).first()
        if token is None:
            raise Http404("you have no such token")
        return token


class Tickets(ApiView):
    """Tickets for WebSockets of programs that cannot send headers."""

    @extend_schema(operation_id="createTicket", request=None, responses={201: TicketAnswer})
    def post(self, request: Request) -> Response:
        """Create a ticket that opens one WebSocket within 30 seconds."""
        no_body(request)
        secret = issue_secret(purpose=TICKET, user=user_of(request), token=own_token(request))
        return Response({"ticket": secret, "expires_at": timezone.now() + LIFE[TICKET]}, status=201)
