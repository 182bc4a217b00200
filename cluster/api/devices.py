"""Devices: what there is, and taking one out of service and back."""

from typing import Any, ClassVar
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.bodies import StrictBody
from cluster.api.caller import actor_of
from cluster.api.conditions import etag
from cluster.api.lists import Column, Order, list_answer, page_of
from cluster.api.query import CURSOR, LIMIT, some_of, text
from cluster.api.view import ApiView
from cluster.core.keyset import read_integer, read_text
from cluster.core.roles import Permission
from cluster.core.states import DeviceState
from cluster.models import Device
from cluster.services.devices import move_device

BY_NODE = Order("devices", (Column("node__name", read_text), Column("index", read_integer)))


class DeviceAnswer(serializers.Serializer[Device]):
    """A device: a GPU, or a core where there is no GPU."""

    id = serializers.UUIDField()
    label = serializers.CharField()  # type: ignore[assignment]  # the word stands in the contract
    node = serializers.CharField()
    index = serializers.IntegerField()
    kind = serializers.CharField()
    memory_bytes = serializers.IntegerField()
    state = serializers.ChoiceField([s.value for s in DeviceState])
    state_reason = serializers.CharField()
    is_simulated = serializers.BooleanField(help_text="simulated devices are never real")
    version = serializers.IntegerField()
    seen_at = serializers.DateTimeField()
    facts = serializers.DictField()


class ReasonBody(StrictBody):
    """Why the device changes its state."""

    knows = "there is only"

    reason = serializers.CharField(max_length=300, required=False, allow_blank=True)


def device_answer(device: Device) -> dict[str, Any]:
    """Return a device as the API shows it."""
    return {
        "id": str(device.pk),
        "label": str(device),
        "node": device.node.name,
        "index": device.index,
        "kind": device.kind,
        "memory_bytes": device.memory_bytes,
        "state": device.state,
        "state_reason": device.state_reason,
        "is_simulated": device.node.is_simulated,
        "version": device.version,
        "seen_at": device.seen_at,
        "facts": device.facts,
    }


class Devices(ApiView):
    """All devices; they belong to no team."""

    parameters = {
        "GET": (
            some_of("state", "Only devices in these states.", DeviceState),
            text("node", "Only devices of the node with this name."),
            text("kind", "Only devices of this kind, for example cpu."),
            LIMIT,
            CURSOR,
        )
    }

    @extend_schema(operation_id="listDevices", responses={200: page_of(DeviceAnswer)})
    def get(self, request: Request) -> Response:
        """List devices by node and index."""
        rows = Device.objects.select_related("node")
        if self.query["state"]:
            rows = rows.filter(state__in=self.query["state"])
        if self.query["node"]:
            rows = rows.filter(node__name=self.query["node"])
        if self.query["kind"]:
            rows = rows.filter(kind=self.query["kind"])
        return list_answer(request, rows, BY_NODE, self.query, device_answer)


class OneDevice(ApiView):
    """One device."""

    @extend_schema(operation_id="readDevice", responses={200: DeviceAnswer})
    def get(self, request: Request, device_id: UUID) -> Response:
        """Read a device."""
        device = get_object_or_404(Device.objects.select_related("node"), pk=device_id)
        return Response(device_answer(device), headers={"ETag": etag(device.version)})


class DeviceMove(ApiView):
    """An operator's hand on a device."""

    needs = {"POST": Permission.OPERATE}
    to: ClassVar[DeviceState]

    def move(self, request: Request, device_id: UUID) -> Response:
        """Move the device and answer with its new state."""
        body = ReasonBody(data=request.data)
        body.is_valid(raise_exception=True)
        get_object_or_404(Device, pk=device_id)
        device = move_device(
            device_id=device_id,
            to=self.to,
            actor=actor_of(request),
            reason=body.validated_data.get("reason", ""),
        )
        return Response(device_answer(device), headers={"ETag": etag(device.version)})


class Cordon(DeviceMove):
    """Nothing new is placed on a cordoned device; what runs there goes on."""

    to = DeviceState.CORDONED

    @extend_schema(operation_id="cordonDevice", request=ReasonBody, responses={200: DeviceAnswer})
    def post(self, request: Request, device_id: UUID) -> Response:
        """Place nothing new on a device."""
        return self.move(request, device_id)


class Drain(DeviceMove):
    """A draining device is left by what runs there as soon as it can."""

    to = DeviceState.DRAINING

    @extend_schema(operation_id="drainDevice", request=ReasonBody, responses={200: DeviceAnswer})
    def post(self, request: Request, device_id: UUID) -> Response:
        """Move work off a device and place nothing new on it."""
        return self.move(request, device_id)


class Uncordon(DeviceMove):
    """The device is used again."""

    to = DeviceState.HEALTHY

    @extend_schema(operation_id="uncordonDevice", request=ReasonBody, responses={200: DeviceAnswer})
    def post(self, request: Request, device_id: UUID) -> Response:
        """Put a device back into service."""
        return self.move(request, device_id)
