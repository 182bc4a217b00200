"""The fleet for people: how slow every device was lately, by node, at ten thousand devices too."""

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.auth.models import AnonymousUser

from cluster.core.states import DeviceState
from cluster.models import Device, Node, User
from cluster.queries import teams_of
from jobs.core.states import JobState
from jobs.models import TrainingRun
from telemetry.core.heat import Cell, Tile, level_of, tile
from telemetry.core.states import FAULTS, VerdictState
from telemetry.models import BurnIn, Verdict

# A node with more devices than this is drawn as it is, but not every cell is a link.
MOST_LINKS = 400
WORST = 50
OUT = {DeviceState.CORDONED, DeviceState.DRAINING, DeviceState.LOST}
REASONS = {DeviceState.SUSPECT: "suspect", DeviceState.CORDONED: "cordoned", DeviceState.DRAINING: "draining",
           DeviceState.LOST: "lost"}  # fmt: skip


class DeviceHeat(NamedTuple):
    """A device, how slow it was lately (None: not measured), its state, and an open incident of it."""

    id: UUID
    node_id: UUID
    node: str
    label: str
    state: str
    slowdown: float | None
    verdict: UUID | None

    @property
    def level(self) -> str:
        """The class of its colour."""
        return level_of(self.slowdown)

    @property
    def is_notable(self) -> bool:
        """Whether somebody should look at it."""
        return self.state != DeviceState.HEALTHY or self.level not in {"unknown", "h0"}


class NodeHeat(NamedTuple):
    """A node with its devices, its drawing, and its worst device."""

    id: UUID
    name: str
    is_simulated: bool
    devices: list[DeviceHeat]
    tile: Tile
    worst: DeviceHeat | None
    notable: int


def fleet_heat(user: User | AnonymousUser) -> list[NodeHeat]:
    """Return every node in order of name. Devices belong to nobody; incidents only to their teams."""
    slow = slowdowns()
    open_ones = dict(
        Verdict.objects.filter(
            state=VerdictState.OPEN,
            device__isnull=False,
            job__team__in=teams_of(user),
            kind__in=sorted(FAULTS),
        ).values_list("device_id", "id")
    )
    rows: dict[UUID, list[DeviceHeat]] = {}
    names = dict(Node.objects.values_list("id", "name"))
    found = Device.objects.order_by("index").values_list("id", "node_id", "kind", "index", "state")
    for pk, node, kind, index, state in found:
        row = DeviceHeat(pk, node, names[node], f"{kind}:{index}", state, slow.get(pk), open_ones.get(pk))
        rows.setdefault(node, []).append(row)
    nodes = Node.objects.order_by("name").values_list("id", "name", "is_simulated")
    return [_node(pk, name, simulated, rows[pk]) for pk, name, simulated in nodes if pk in rows]


def slowdowns() -> dict[UUID, float]:
    """Return how slow each device was lately: in a running job, an open incident, or its last burn-in."""
    found: dict[UUID, float] = {}
    tests = (
        BurnIn.objects.filter(factor__isnull=False).order_by("device_id", "-started_at").distinct("device_id")
    )
    found |= {device: float(factor or 0) for device, factor in tests.values_list("device_id", "factor")}
    runs = TrainingRun.objects.filter(job__state=JobState.RUNNING).values_list("devices", "health")
    found |= dict(_measured(runs))
    opened = Verdict.objects.filter(state=VerdictState.OPEN, device__isnull=False, factor__isnull=False)
    for device, factor in opened.values_list("device_id", "factor"):
        if device is not None and factor is not None:
            found[device] = max(found.get(device, 0.0), factor)
    return found


def _measured(runs: Iterable[tuple[Any, Any]]) -> Iterable[tuple[UUID, float]]:
    """Yield the devices of running jobs; one that several ranks share is as slow as its slowest rank."""
    worst: dict[UUID, float] = {}
    for devices, health in runs:
        for index, row in enumerate(health if isinstance(health, list) else []):
            value, rank = row.get("slowdown"), int(row.get("rank", index))
            device = devices[rank].get("id") if rank < len(devices) else None
            if device and isinstance(value, int | float):
                key = UUID(str(device))
                worst[key] = max(worst.get(key, 0.0), float(value))
    return worst.items()


def _node(pk: UUID, name: str, simulated: bool, devices: list[DeviceHeat]) -> NodeHeat:
    cells = [Cell("lost" if d.state == DeviceState.LOST else d.level, d.state in OUT) for d in devices]
    notable = [d for d in devices if d.is_notable]
    worst = max(notable, key=badness, default=None)
    return NodeHeat(pk, name, simulated, devices, tile(cells), worst, len(notable))


def badness(device: DeviceHeat) -> tuple[bool, float]:
    """Order devices: those out of use first, then the slowest."""
    return (device.state != DeviceState.HEALTHY, device.slowdown or 0.0)


def worst_devices(nodes: Iterable[NodeHeat], limit: int = WORST) -> list[DeviceHeat]:
    """Return the devices that somebody should look at, the worst first."""
    rows = [device for node in nodes for device in node.devices if device.is_notable]
    return sorted(rows, key=badness, reverse=True)[:limit]
