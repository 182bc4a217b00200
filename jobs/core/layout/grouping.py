"""Every way to cut the devices of a node into tensor-parallel groups, without the provably useless ones.

Devices of one node with equal speed and memory are one *class*; a *usage* says how many of each class work.
Where memory does not matter or falls with speed, sorting by speed and cutting into contiguous runs loses
nothing: exchanging members between groups of given sizes can only lower the smallest speed of one of them.
Otherwise every partition is tried.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from operator import mul

from jobs.core.layout.instance import Device, Instance
from jobs.core.layout.work import GroupType, Work

MOST_GROUPINGS = 60_000  # of one node
Usage = tuple[int, ...]
Kinds = tuple[GroupType, ...]


class TooLarge(Exception):
    """There are too many possibilities to search them all."""


@dataclass(frozen=True)
class NodeClasses:
    """The living devices of one node, fastest first, and how many of each class there are."""

    node: str
    devices: tuple[Device, ...]

    @cached_property
    def classes(self) -> list[list[Device]]:
        """Devices by class, in order."""
        found: list[list[Device]] = []
        for device in self.devices:
            if found and (found[-1][0].speed, found[-1][0].memory) == (device.speed, device.memory):
                found[-1].append(device)
            else:
                found.append([device])
        return found

    @property
    def counts(self) -> Usage:
        """Number of devices per class."""
        return tuple(len(members) for members in self.classes)

    def members(self, usage: Usage) -> list[Device]:
        """The first devices of each class, as many as the usage says, fastest first."""
        return [
            device for members, count in zip(self.classes, usage, strict=True) for device in members[:count]
        ]


def nodes_of(instance: Instance) -> list[NodeClasses]:
    """Nodes with a living device, in the instance's order."""
    rows: dict[str, list[Device]] = {}
    for device in instance.living:
        rows.setdefault(device.node, []).append(device)
    return [
        NodeClasses(node, tuple(sorted(devices, key=lambda device: (-device.speed, -device.memory))))
        for node, devices in rows.items()
    ]


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to group exactly the devices of a usage: per group how many of each class."""

    kinds: Kinds  # sorted
    groups: tuple[Usage, ...]


def cuts_of(node: NodeClasses, work: Work) -> dict[Usage, list[Cut]]:
    """For every usage of a node the cuts worth trying; usages without any are left out.

    Raises TooLarge.
    """
    total = float(work.instance.memory_sums[-1])
    memories = [min(device.memory, total) for device in node.devices]
    contiguous = all(a >= b for a, b in zip(memories, memories[1:], strict=False))
    sizes = work.instance.legal_sizes
    partitions = _Partitions(node, sizes)
    if contiguous:
        _refuse_many_runs(node, sizes)
    table: dict[Usage, list[Cut]] = {}
    for usage in product(*(range(count + 1) for count in node.counts)):
        groupings = _runs(usage, sizes) if contiguous else partitions.of(usage)
        cuts: dict[Kinds, Cut] = {}
        for groups in groupings:
            kinds = [work.group_type(node.members(group)) for group in groups]
            if all(work.useful(kind) for kind in kinds) and len(kinds) <= work.layers:
                key = tuple(sorted(kinds, reverse=True))
                cuts.setdefault(key, Cut(key, tuple(groups)))
        if cuts:
            table[usage] = _undominated(list(cuts.values()))
    return table


def _refuse_many_runs(node: NodeClasses, sizes: Sequence[int]) -> None:
    """Raise TooLarge if all usages together have too many compositions."""
    total = len(node.devices)
    compositions = [1] + [0] * total
    for n in range(1, total + 1):
        compositions[n] = sum(compositions[n - size] for size in sizes if size <= n)
    usages = [1]  # by number of devices
    for count in node.counts:
        usages = [
            sum(usages[n - k] for k in range(count + 1) if 0 <= n - k < len(usages))
            for n in range(len(usages) + count)
        ]
    if sum(map(mul, compositions, usages)) > MOST_GROUPINGS:
        raise TooLarge


def _runs(usage: Usage, sizes: Sequence[int]) -> Iterator[list[Usage]]:
    """Contiguous runs over the sorted devices, for every composition of their number."""
    order = [index for index, count in enumerate(usage) for _ in range(count)]

    def extend(start: int) -> Iterator[list[Usage]]:
        if start == len(order):
            yield []
        for size in sizes:
            if start + size <= len(order):
                run = order[start : start + size]
                group = tuple(run.count(index) for index in range(len(usage)))
                for rest in extend(start + size):
                    yield [group, *rest]

    return extend(0)


class _Partitions:
    """Every set partition of a usage into groups of the allowed sizes, up to equal classes."""

    def __init__(self, node: NodeClasses, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.known: dict[Usage, list[list[Usage]]] = {(0,) * len(node.counts): [[]]}
        self.total = 0

    def of(self, usage: Usage) -> list[list[Usage]]:
        """All partitions, each sorted so that none comes twice."""
        if usage not in self.known:
            found: dict[tuple[Usage, ...], None] = {}
            lead = next(index for index, count in enumerate(usage) if count)
            for group in product(*(range(count + 1) for count in usage)):
                if group[lead] and sum(group) in self.sizes:
                    rest = tuple(count - used for count, used in zip(usage, group, strict=True))
                    for other in self.of(rest):
                        found[tuple(sorted([group, *other]))] = None
                    if self.total + len(found) > MOST_GROUPINGS:
                        raise TooLarge
            self.total += len(found)
            self.known[usage] = [list(groups) for groups in found]
        return self.known[usage]


def _undominated(cuts: list[Cut]) -> list[Cut]:
    """Drop cuts that another one with as many groups beats or equals group by group."""
    kept: list[Cut] = []
    # A cut that dominates another comes before it in this order.
    for cut in sorted(cuts, key=lambda cut: cut.kinds, reverse=True):
        if not any(_dominates(other.kinds, cut.kinds) for other in kept):
            kept.append(cut)
    return kept


def _dominates(strong: Kinds, weak: Kinds) -> bool:
    return len(strong) == len(weak) and all(
        a.rate >= b.rate and a.capacity >= b.capacity for a, b in zip(strong, weak, strict=True)
    )
