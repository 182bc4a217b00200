"""Devices: discovery, state changes, and who runs on them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from cluster.core.errors import IllegalDeviceMove
from cluster.core.states import DeviceState, can_move
from cluster.models import Device, Node
from journal.services import Fact, audit, record

FLEET = "fleet"


@dataclass(frozen=True)
class FoundDevice:
    """A device as discovery reports it."""

    index: int
    kind: str
    memory_bytes: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FoundNode:
    """A machine as discovery reports it."""

    name: str
    address: str
    cpus: int
    memory_bytes: int
    devices: tuple[FoundDevice, ...]
    facts: dict[str, Any] = field(default_factory=dict)


@transaction.atomic
def record_discovery(found: Iterable[FoundNode]) -> None:
    """Store what discovery saw; real devices it no longer sees become lost, returning ones healthy."""
    now = timezone.now()
    seen: set[UUID] = set()
    for machine in found:
        node, _ = Node.objects.update_or_create(
            name=machine.name,
            defaults={
                "address": machine.address,
                "cpus": machine.cpus,
                "memory_bytes": machine.memory_bytes,
                "facts": machine.facts,
                "seen_at": now,
            },
        )
        for device in machine.devices:
            row, _ = Device.objects.update_or_create(
                node=node,
                index=device.index,
                defaults={
                    "kind": device.kind,
                    "memory_bytes": device.memory_bytes,
                    "facts": device.facts,
                    "seen_at": now,
                },
            )
            seen.add(row.pk)
            if row.state == DeviceState.LOST:
                _move(row, DeviceState.HEALTHY, "seen again")
    gone = Device.objects.select_for_update().filter(node__is_simulated=False).exclude(pk__in=seen)
    for row in gone.exclude(state=DeviceState.LOST):
        _move(row, DeviceState.LOST, "no longer reported by the cluster")


@transaction.atomic
def move_device(*, device_id: UUID, to: DeviceState, actor: str, reason: str = "") -> Device:
    """Cordon, drain or uncordon a device on somebody's behalf."""
    device = Device.objects.select_for_update().get(pk=device_id)
    if device.state != to:
        _move(device, to, reason)
        audit(actor=actor, action=f"device.{to}", target=f"device:{device.pk}", detail={"reason": reason})
    return device


@transaction.atomic
def move_node(*, node_id: UUID, to: DeviceState, actor: str, reason: str = "") -> int:
    """Cordon, drain or uncordon every device of a node that can be; return how many were moved."""
    moved = 0
    for device in Device.objects.select_for_update().filter(node_id=node_id).order_by("index"):
        if device.state != to and can_move(DeviceState(device.state), to):
            _move(device, to, reason)
            moved += 1
    audit(
        actor=actor, action=f"node.{to}", target=f"node:{node_id}", detail={"reason": reason, "moved": moved}
    )
    return moved


def _move(device: Device, new: DeviceState, reason: str) -> None:
    old = DeviceState(device.state)
    if not can_move(old, new):
        raise IllegalDeviceMove(old, new)
    device.state, device.state_reason = new, reason
    device.version += 1
    device.save(update_fields=["state", "state_reason", "version"])
    data = {"device": str(device.pk), "label": str(device), "from": old, "to": new, "reason": reason}
    record(FLEET, [Fact("device.state", data)])
