"""Reservations of a team: devices kept for it over a time."""

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.caller import actor_of, demand, visible_teams
from cluster.api.queue import CLUSTER, chosen_cluster
from cluster.api.quotas import AMOUNT
from cluster.api.view import ApiView
from cluster.core.bookings import read_booking
from cluster.core.requests import MILLI
from cluster.core.roles import Permission
from cluster.models import BookedDevices
from cluster.services.reservations import book_devices, cancel_booking, present_bookings

NAME = {"type": "string", "minLength": 1, "maxLength": 100}
BOOKING_BODY = {
    "type": "object",
    "properties": {
        "name": {**NAME, "description": "by which jobs name it in `reservation`"},
        "kind": {**NAME, "description": "kind of device"},
        "devices": {**AMOUNT, "description": "how many are kept"},
        "start": {"type": "string", "format": "date-time", "description": "the default is now"},
        "end": {"type": "string", "format": "date-time"},
        "lendable": {
            "type": "boolean",
            "default": True,
            "description": "others may use them meanwhile and give way at once",
        },
    },
    "required": ["name", "kind", "devices", "end"],
    "additionalProperties": False,
}


class ReservationAnswer(serializers.Serializer[Any]):
    """Devices that are kept for a team's jobs that name the reservation."""

    name = serializers.CharField()
    team = serializers.CharField()
    kind = serializers.CharField()
    devices = serializers.FloatField()
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    lendable = serializers.BooleanField()


class ReservationsAnswer(serializers.Serializer[Any]):
    """The reservations of a team that are not over."""

    items = ReservationAnswer(many=True)


def reservation_answer(row: BookedDevices) -> dict[str, Any]:
    """Return a reservation as the API shows it."""
    return {
        "name": row.name,
        "team": row.team.slug,
        "kind": row.kind,
        "devices": row.milli / MILLI,
        "start": row.start_at,
        "end": row.end_at,
        "lendable": row.is_lendable,
    }


class Reservations(ApiView):
    """A team's reservations."""

    needs = {"POST": Permission.OPERATE}
    parameters = {"GET": (CLUSTER,), "POST": (CLUSTER,)}

    @extend_schema(operation_id="listReservations", responses={200: ReservationsAnswer})
    def get(self, request: Request, team_id: UUID) -> Response:
        """List a team's reservations that are not over."""
        team = get_object_or_404(visible_teams(request), pk=team_id)
        rows = present_bookings(chosen_cluster(self.query)).filter(team=team)
        return Response({"items": [reservation_answer(row) for row in rows]})

    @extend_schema(
        operation_id="bookDevices",
        request={"application/json": BOOKING_BODY},
        responses={201: ReservationAnswer},
    )
    def post(self, request: Request, team_id: UUID) -> Response:
        """Keep devices for a team over a time. Nobody is stopped before it begins."""
        team = get_object_or_404(visible_teams(request), pk=team_id)
        demand(request, Permission.OPERATE, team.pk)
        body = read_booking(request.data, timezone.now())
        row = book_devices(
            name=chosen_cluster(self.query), team_id=team.pk, body=body, actor=actor_of(request)
        )
        return Response(reservation_answer(row), status=status.HTTP_201_CREATED)


class OneReservation(ApiView):
    """One reservation."""

    needs = {"DELETE": Permission.OPERATE}
    parameters = {"DELETE": (CLUSTER,)}

    @extend_schema(operation_id="cancelReservation", responses={204: None})
    def delete(self, request: Request, team_id: UUID, name: str) -> Response:
        """Give a reservation up; what runs on its devices goes on. One that is not there is no fault."""
        team = get_object_or_404(visible_teams(request), pk=team_id)
        demand(request, Permission.OPERATE, team.pk)
        row = present_bookings(chosen_cluster(self.query)).filter(team=team, name=name).first()
        if row is not None:
            cancel_booking(row, actor=actor_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)
