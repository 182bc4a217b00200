"""Webhooks over the API: where a team's alerts are sent, and what became of each message."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.bodies import StrictBody
from cluster.api.caller import actor_of, demand, teams_allowing, user_of, visible_teams
from cluster.api.lists import Column, Order, list_answer, page_of
from cluster.api.query import CURSOR, LIMIT, some_of
from cluster.api.view import ApiView
from cluster.core.keyset import read_time, read_uuid
from cluster.core.roles import Permission
from cluster.models import Team
from jobs.api.jobs import no_body
from telemetry.core.errors import InvalidWebhook
from telemetry.core.states import DeliveryState
from telemetry.core.webhooks.alerts import KINDS, USUAL
from telemetry.core.webhooks.targets import LONGEST_URL
from telemetry.models import Webhook, WebhookDelivery
from telemetry.services.webhooks import create_webhook, delete_webhook, send_again, send_test

COLUMNS = (Column("created_at", read_time, descending=True), Column("id", read_uuid, descending=True))
NEWEST = Order("webhooks", COLUMNS)
NEWEST_DELIVERY = Order("deliveries", COLUMNS)


class WebhookAnswer(serializers.Serializer[Webhook]):
    """Where alerts are sent, without its secret."""

    id = serializers.UUIDField()
    team = serializers.CharField(help_text="slug of the team whose alerts are sent")
    url = serializers.CharField()
    kinds = serializers.ListField(child=serializers.ChoiceField(list(KINDS)))
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    disabled_reason = serializers.CharField(help_text="why nothing is sent any more; empty while it is on")


class NewWebhookAnswer(WebhookAnswer):
    """A fresh webhook; its secret is shown this once."""

    secret = serializers.CharField(help_text="verifies signatures (Standard Webhooks): keep it now")


class WebhookBody(StrictBody):
    """Where to send which alerts."""

    knows = "a webhook has"

    url = serializers.CharField(max_length=LONGEST_URL)
    kinds = serializers.ListField(
        child=serializers.ChoiceField(list(KINDS)), required=False, default=list(USUAL), allow_empty=False,
        max_length=len(KINDS), help_text="event kinds; default: incidents, plans that wait or failed",
    )  # fmt: skip
    team = serializers.CharField(max_length=50, required=False, help_text="slug; default: your only team")


class DeliveryAnswer(serializers.Serializer[WebhookDelivery]):
    """One message of a webhook."""

    id = serializers.UUIDField()
    kind = serializers.CharField()
    state = serializers.ChoiceField([s.value for s in DeliveryState])
    attempts = serializers.IntegerField()
    repeats = serializers.IntegerField(help_text="how often the same was not said again")
    status = serializers.IntegerField(allow_null=True, help_text="what the receiver answered last")
    error = serializers.CharField()
    body = serializers.DictField()
    created_at = serializers.DateTimeField()
    next_at = serializers.DateTimeField(help_text="of a waiting one: when it is tried again at the latest")
    ended_at = serializers.DateTimeField(allow_null=True)


def webhook_answer(row: Webhook) -> dict[str, Any]:
    """Return a webhook as the API shows it."""
    same = ("url", "kinds", "created_at", "disabled_reason")
    return {
        "id": str(row.pk),
        "team": row.team.slug,
        "created_by": row.created_by.get_username(),
        **{name: getattr(row, name) for name in same},
    }


def delivery_answer(row: WebhookDelivery) -> dict[str, Any]:
    """Return a message as the API shows it."""
    same = (
        "kind", "state", "attempts", "repeats", "status", "error", "body", "created_at", "next_at",
        "ended_at",
    )  # fmt: skip
    return {"id": str(row.pk), **{name: getattr(row, name) for name in same}}


def webhooks_of(request: Request) -> QuerySet[Webhook]:
    """Return the webhooks of the teams that the caller administers."""
    teams = teams_allowing(request, Permission.ADMINISTER)
    return Webhook.objects.filter(team__in=teams).select_related("team", "created_by")


class Webhooks(ApiView):
    """The webhooks of the caller's teams."""

    needs = {"GET": Permission.ADMINISTER, "POST": Permission.ADMINISTER}
    parameters = {"GET": (LIMIT, CURSOR)}

    @extend_schema(operation_id="listWebhooks", responses={200: page_of(WebhookAnswer)})
    def get(self, request: Request) -> Response:
        """List webhooks, newest first."""
        return list_answer(request, webhooks_of(request), NEWEST, self.query, webhook_answer)

    @extend_schema(operation_id="createWebhook", request=WebhookBody, responses={201: NewWebhookAnswer})
    def post(self, request: Request) -> Response:
        """Create a webhook. Addresses that are not public are refused unless the operator allows them."""
        body = WebhookBody(data=request.data)
        body.is_valid(raise_exception=True)
        wanted = body.validated_data
        made = create_webhook(
            team=_team(request, wanted.get("team")),
            user=user_of(request),
            actor=actor_of(request),
            url=wanted["url"],
            kinds=wanted["kinds"],
        )
        headers = {"Location": request.build_absolute_uri(f"{request.path}/{made.webhook.pk}")}
        return Response({**webhook_answer(made.webhook), "secret": made.secret}, status=201, headers=headers)


def _team(request: Request, slug: str | None) -> Team:
    teams = teams_allowing(request, Permission.ADMINISTER)
    if slug is not None:
        team = visible_teams(request).filter(slug=slug).first()
        if team is None:
            raise InvalidWebhook([("/team", f"you have no team '{slug[:50]}'")])
        demand(request, Permission.ADMINISTER, team.pk)
        return team
    only = list(teams[:2])
    if len(only) != 1:
        raise InvalidWebhook([("/team", "say which of your teams it is for")])
    return only[0]


class WebhookView(ApiView):
    """One webhook, found among those of the caller's teams."""

    needs = dict.fromkeys(("GET", "POST", "DELETE"), Permission.ADMINISTER)

    def find(self, request: Request, webhook_id: UUID) -> Webhook:
        """Return a webhook; a foreign one does not exist, and a role too low is refused."""
        seen = Webhook.objects.filter(team__in=visible_teams(request)).select_related("team", "created_by")
        row = get_object_or_404(seen, pk=webhook_id)
        demand(request, Permission.ADMINISTER, row.team_id)
        return row


class OneWebhook(WebhookView):
    """One webhook."""

    @extend_schema(operation_id="readWebhook", responses={200: WebhookAnswer})
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """Read a webhook, without its secret."""
        return Response(webhook_answer(self.find(request, webhook_id)))

    @extend_schema(operation_id="deleteWebhook", responses={204: None})
    def delete(self, request: Request, webhook_id: UUID) -> Response:
        """Delete a webhook with its messages."""
        delete_webhook(webhook_id=self.find(request, webhook_id).pk, actor=actor_of(request))
        return Response(status=204)


class TestWebhook(WebhookView):
    """Trying a webhook out."""

    @extend_schema(operation_id="testWebhook", request=None, responses={202: DeliveryAnswer})
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Send a message of kind `webhook.test`; `deliveries` says what became of it."""
        no_body(request)
        row = send_test(webhook_id=self.find(request, webhook_id).pk, actor=actor_of(request))
        return Response(delivery_answer(row), status=202)


class Deliveries(WebhookView):
    """The messages of a webhook."""

    parameters = {"GET": (some_of("state", "Only messages in these states.", DeliveryState), LIMIT, CURSOR)}

    @extend_schema(operation_id="listDeliveries", responses={200: page_of(DeliveryAnswer)})
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """List a webhook's messages, newest first."""
        rows = WebhookDelivery.objects.filter(webhook=self.find(request, webhook_id))
        if self.query["state"]:
            rows = rows.filter(state__in=self.query["state"])
        return list_answer(request, rows, NEWEST_DELIVERY, self.query, delivery_answer)


class Redeliver(WebhookView):
    """Sending a message once more."""

    @extend_schema(operation_id="redeliver", request=None, responses={202: DeliveryAnswer})
    def post(self, request: Request, webhook_id: UUID, delivery_id: UUID) -> Response:
        """Send a message again that was delivered or given up, with the same id."""
        no_body(request)
        rows = WebhookDelivery.objects.filter(webhook=self.find(request, webhook_id))
        row = send_again(delivery_id=get_object_or_404(rows, pk=delivery_id).pk)
        return Response(delivery_answer(row), status=202)
