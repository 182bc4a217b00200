"""Every device of a live cluster in whole thousandths: who fits where, whole devices and shares of one."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.core.errors import CapacityError
from cluster.core.placement.pool import NodePool
from cluster.core.placement.rules import PlaceRule, place_consolidated
from cluster.core.requests import MILLI, TaskShape, memory_milli

PLACEABLE = "healthy"


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node.

    Attributes:
        state: only a healthy node is placed on; `draining` also sends its jobs away, `lost` has lost them.
        unusable: numbers of devices that are not placed on although the node is.
        draining, lost: those of the unusable ones that also send their jobs away, or have lost them.
        domains: topology level to domain, such as {"rack": "r7"}.
        memory_bytes: memory of each device; 0 where nobody knows.
    """

    name: str
    devices: int
    kind: str = ""
    state: str = PLACEABLE
    unusable: tuple[int, ...] = ()
    domains: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    draining: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()

    def sends_away(self) -> bool:
        """Whether jobs on some device of it have to leave, or have lost it."""
        return self.state in ("draining", "lost") or bool(self.draining or self.lost)

    def condition(self, device: int) -> str:
        """Return the state of one device: its own where that is worse than the node's."""
        if self.state == "lost" or device in self.lost:
            return "lost"
        if self.state == "draining" or device in self.draining:
            return "draining"
        return self.state


@dataclass(frozen=True, slots=True)
class Slice:
    """Thousandths of one device that one task of a gang holds."""

    node: str
    device: int
    milli: int = MILLI
    task: int = 0


class DevicePool:
    """Free thousandths of every device; whole ones indexed by node, used ones by what is left."""

    def __init__(
        self,
        nodes: Sequence[NodeView],
        place: PlaceRule = place_consolidated,
        held: Iterable[Slice] = (),
    ) -> None:
        self.nodes = list(nodes)
        self.place_rule = place
        self.number = {node.name: index for index, node in enumerate(nodes)}
        if len(self.number) != len(nodes):
            raise CapacityError("two nodes have the same name")
        self.first: list[int] = []
        self.free: list[int] = []
        self.node_of: list[int] = []
        self.usable: list[bool] = []
        for index, node in enumerate(nodes):
            self.first.append(len(self.free))
            bad = set(node.unusable)
            healthy = node.state == PLACEABLE
            self.free += [MILLI] * node.devices
            self.node_of += [index] * node.devices
            if healthy and not bad:
                self.usable += [True] * node.devices
            else:
                self.usable += [healthy and device not in bad for device in range(node.devices)]
        self._hold_all(held)
        sizes, whole = [0] * len(nodes), [0] * len(nodes)
        self.partial: list[tuple[int, int]] = []  # (free thousandths, device) of usable, partly used devices
        for number, (first, node) in enumerate(zip(self.first, nodes, strict=True)):
            segment = self.free[first : first + node.devices]
            if node.unusable or node.state != PLACEABLE:
                usable = self.usable[first : first + node.devices]
                segment = [free if good else -1 for free, good in zip(segment, usable, strict=True)]
            full, used = segment.count(MILLI), segment.count(0)
            sizes[number], whole[number] = node.devices - segment.count(-1), full
            if full + used < sizes[number]:
                self.partial += [(free, first + at) for at, free in enumerate(segment) if 0 < free < MILLI]
        self.partial.sort()
        self.whole = NodePool(sizes, whole)
        self.masks = _masks_by_kind(nodes)

    def copy(self) -> "DevicePool":
        """Return an independent pool in the same state."""
        twin = object.__new__(DevicePool)
        twin.nodes, twin.place_rule, twin.number = self.nodes, self.place_rule, self.number
        twin.first, twin.node_of, twin.usable, twin.masks = self.first, self.node_of, self.usable, self.masks
        twin.free, twin.whole, twin.partial = self.free.copy(), self.whole.copy(), self.partial.copy()
        return twin

    def occupy(self, slices: Iterable[Slice]) -> None:
        """Take devices; CapacityError where one would be given twice."""
        for piece in slices:
            self._change(piece, -piece.milli)

    def release(self, slices: Iterable[Slice]) -> None:
        """Give devices back; CapacityError where one was not taken."""
        for piece in slices:
            self._change(piece, piece.milli)

    def kind_of(self, slices: Sequence[Slice]) -> str:
        """Return the device kind of a placement."""
        return self.nodes[self.number[slices[0].node]].kind if slices else ""

    def can_use(self, piece: Slice) -> bool:
        """Whether a device is there and may be placed on, free or not."""
        return piece.node in self.number and self.usable[self._device(piece)]

    def left_on(self, piece: Slice) -> int:
        """Return the free thousandths of the device that a slice is of."""
        return self.free[self._device(piece)]

    def free_milli(self, allowed: int = -1) -> int:
        """Return the free thousandths of usable devices on allowed nodes."""
        partly = sum(free for free, device in self.partial if allowed >> self.node_of[device] & 1)
        return partly + MILLI * self.whole.free_in(allowed)

    def totals(self) -> dict[str, dict[str, int]]:
        """Return total, used, free and drained thousandths of each kind; the last three make the first."""
        totals: dict[str, dict[str, int]] = {}
        for first, node in zip(self.first, self.nodes, strict=True):
            entry = totals.setdefault(node.kind, {"total": 0, "used": 0, "free": 0, "drained": 0})
            free = self.free[first : first + node.devices]
            left = sum(free)
            drained = left
            if node.state == PLACEABLE:
                drained = sum(free[device] for device in set(node.unusable) if 0 <= device < node.devices)
            entry["total"] += MILLI * node.devices
            entry["used"] += MILLI * node.devices - left
            entry["free"] += left - drained
            entry["drained"] += drained
        return totals

    def place(self, tasks: Sequence[TaskShape], allowed: int = -1) -> list[Slice] | None:
        """Take devices for a whole gang, or none at all.

        An elastic group starts with as many tasks as fit, never fewer than its `min_count`.
        """
        taken: list[Slice] = []
        first_task = 0
        for task in sorted(tasks, key=lambda shape: -shape.devices * shape.milli):
            placed = self._place_group(task, allowed, first_task)
            if placed is None:
                self.release(taken)
                return None
            taken += placed
            first_task += task.count
        return taken

    def _place_group(self, task: TaskShape, allowed: int, first_task: int) -> list[Slice] | None:
        if not task.devices:
            return []
        milli = self._milli(task, allowed)
        if milli > MILLI:
            return None
        count = task.count
        while True:
            placed = self._place_tasks(task, count, milli, allowed, first_task)
            if placed is not None or not task.min_count or count <= task.min_count:
                return placed
            count = max(task.min_count, count // 2)

    def _place_tasks(
        self, task: TaskShape, count: int, milli: int, allowed: int, first_task: int
    ) -> list[Slice] | None:
        if milli < MILLI:
            return self._place_shares(task.devices, count, milli, allowed, first_task)
        if task.may_split or task.devices == 1:
            slots = self.place_rule(self.whole.copy(), count * task.devices, allowed)
            if slots is None:
                return None
            devices = [device for node, wanted in slots for device in self._whole_devices(node, wanted)]
            return self._take(devices, MILLI, first_task, task.devices)
        return self._place_whole_tasks(task.devices, count, allowed, first_task)

    def _place_whole_tasks(
        self, devices: int, count: int, allowed: int, first_task: int
    ) -> list[Slice] | None:
        """Put tasks that each need one node on as few nodes as possible."""
        trial = self.whole.copy()
        chosen: list[int] = []
        left = count
        while left:
            node = trial.best_fit(left * devices, allowed)
            if node < 0:
                node = trial.roomiest(allowed)
            here = min(left, trial.free[node] // devices) if node >= 0 else 0
            if not here:
                return None
            trial.take(node, here * devices)
            chosen += self._whole_devices(node, here * devices)
            left -= here
        return self._take(chosen, MILLI, first_task, devices)

    def _place_shares(
        self, devices: int, count: int, milli: int, allowed: int, first_task: int
    ) -> list[Slice] | None:
        """Put each task on the fullest devices of one node that still have room."""
        taken: list[Slice] = []
        for task in range(count):
            found = (
                self._one_share(milli, allowed)
                if devices == 1
                else self._several_shares(devices, milli, allowed)
            )
            if found is None:
                self.release(taken)
                return None
            taken += self._take(found, milli, first_task + task, devices)
        return taken

    def _one_share(self, milli: int, allowed: int) -> list[int] | None:
        for position in range(bisect_left(self.partial, (milli, -1)), len(self.partial)):
            device = self.partial[position][1]
            if allowed >> self.node_of[device] & 1:
                return [device]
        node = self.whole.best_fit(1, allowed)
        return self._whole_devices(node, 1) if node >= 0 else None

    def _several_shares(self, devices: int, milli: int, allowed: int) -> list[int] | None:
        best: tuple[int, list[int]] | None = None
        for node in range(len(self.nodes)):
            if not allowed >> node & 1:
                continue
            room = [
                device
                for device in self._devices_of(node)
                if self.usable[device] and self.free[device] >= milli
            ]
            if len(room) < devices:
                continue
            left = sum(self.free[device] for device in room)
            if best is None or left < best[0]:
                best = left, sorted(room, key=lambda device: (self.free[device], device))[:devices]
        return best[1] if best else None

    def _milli(self, task: TaskShape, allowed: int) -> int:
        if not task.memory_bytes:
            return task.milli
        sizes = [node.memory_bytes for number, node in enumerate(self.nodes) if allowed >> number & 1]
        return memory_milli(task.memory_bytes, min(sizes, default=0))

    def _devices_of(self, node: int) -> range:
        return range(self.first[node], self.first[node] + self.nodes[node].devices)

    def _whole_devices(self, node: int, count: int) -> list[int]:
        free = (
            device for device in self._devices_of(node) if self.usable[device] and self.free[device] == MILLI
        )
        return [device for device, _ in zip(free, range(count), strict=False)]

    def _take(self, devices: Sequence[int], milli: int, first_task: int, per_task: int) -> list[Slice]:
        slices = [
            Slice(
                self.nodes[self.node_of[device]].name,
                device - self.first[self.node_of[device]],
                milli,
                first_task + position // per_task,
            )
            for position, device in enumerate(devices)
        ]
        if milli < MILLI:
            self.occupy(slices)
            return slices
        counts: dict[int, int] = {}
        for device in devices:
            self.free[device] = 0
            node = self.node_of[device]
            counts[node] = counts.get(node, 0) + 1
        self.whole.take_all(list(counts.items()))
        return slices

    def _hold_all(self, held: Iterable[Slice]) -> None:
        """Take slices before anything is indexed; ten thousand at once, so written out."""
        number, first, nodes, free = self.number, self.first, self.nodes, self.free
        for piece in held:
            node, at = number[piece.node], piece.device
            if not 0 <= at < nodes[node].devices:
                raise CapacityError(f"node {piece.node} has no device {at}")
            device = first[node] + at
            left = free[device] - piece.milli
            if left < 0:
                raise CapacityError(f"device {at} of {piece.node} is held twice")
            free[device] = left

    def _device(self, piece: Slice) -> int:
        node = self.number[piece.node]
        if not 0 <= piece.device < self.nodes[node].devices:
            raise CapacityError(f"node {piece.node} has no device {piece.device}")
        return self.first[node] + piece.device

    def _change(self, piece: Slice, milli: int) -> None:
        device = self._device(piece)
        node = self.node_of[device]
        old = self.free[device]
        new = old + milli
        if not 0 <= new <= MILLI:
            raise CapacityError(
                f"device {piece.device} of {piece.node} has {old} thousandths free, {milli:+d} asked"
            )
        self.free[device] = new
        if not self.usable[device]:
            return
        if old == MILLI:
            self.whole.take(node, 1)
        elif old:
            del self.partial[bisect_left(self.partial, (old, device))]
        if new == MILLI:
            self.whole.give(node, 1)
        elif new:
            insort(self.partial, (new, device))


def _masks_by_kind(nodes: Sequence[NodeView]) -> dict[str, int]:
    members: dict[str, bytearray] = {}
    for number, node in enumerate(nodes):
        mask = members.setdefault(node.kind, bytearray((len(nodes) >> 3) + 1))
        mask[number >> 3] |= 1 << (number & 7)
    return {kind: int.from_bytes(mask, "little") for kind, mask in members.items()}
