"""First drafts of layouts for large clusters: how to cut each kind of node, how to deal groups to replicas.

Time does not depend on where a group lies (every transfer costs the same), so nodes with equal devices are
one kind, and one decision is taken per kind. Only the groups' rates and capacities matter for dealing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from jobs.core.layout.grouping import nodes_of
from jobs.core.layout.instance import Device
from jobs.core.layout.work import GroupType, Work

Signature = tuple[tuple[float, float], ...]  # (speed, memory) of a node's living devices, fastest first
SLOW = 0.999  # below this part of its node's fastest device a device counts as slow when groups are drafted


@dataclass(frozen=True, slots=True)
class Group:
    """A tensor-parallel group of concrete devices."""

    kind: GroupType
    devices: tuple[Device, ...]


Menu = list[list[tuple[int, int]]]  # cuts of a node kind, each a list of (start, end) runs of its devices


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes with equal living devices, and the cuts worth trying for them."""

    signature: Signature
    nodes: list[tuple[Device, ...]]
    menu: Menu


def node_kinds(work: Work) -> list[NodeKind]:
    """Kinds of nodes, the most frequent first."""
    found: dict[Signature, list[tuple[Device, ...]]] = {}
    for node in nodes_of(work.instance):
        signature = tuple((device.speed, device.memory) for device in node.devices)
        found.setdefault(signature, []).append(node.devices)
    kinds = [NodeKind(key, nodes, cut_menu(key, work.instance.legal_sizes)) for key, nodes in found.items()]
    return sorted(kinds, key=lambda kind: (-len(kind.nodes), kind.signature))


def cut_menu(signature: Signature, sizes: Sequence[int]) -> Menu:
    """Cuts of a node: groups of one leading size, then the largest that fit; slow ones in, apart or out."""
    total = len(signature)
    healthy = sum(1 for speed, _ in signature if speed >= SLOW * signature[0][0])
    menu: dict[tuple[tuple[int, int], ...], None] = {}
    for lead in sizes:
        menu[tuple(_fill(0, total, lead, sizes))] = None
        for usable in range(healthy, total):
            front = _fill(0, usable, lead, sizes)
            menu[tuple(front)] = None
            for other in sizes:
                menu[tuple(front + _fill(usable, total, other, sizes))] = None
    return [list(cut) for cut in menu if cut]


def _fill(start: int, end: int, lead: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of the leading size, then of ever smaller ones; what is left at the end stays idle."""
    runs = []
    for size in (lead, *(size for size in sorted(sizes, reverse=True) if size != lead)):
        while start + size <= end:
            runs.append((start, start + size))
            start += size
    return runs


def groups_of(kind: NodeKind, cut: Sequence[tuple[int, int]], work: Work) -> list[Group]:
    """The groups of all nodes of a kind under one cut; those too small for a layer are left out."""
    rows = []
    types: dict[tuple[int, int], GroupType] = {}
    for devices in kind.nodes:
        for start, end in cut:
            members = devices[start:end]
            # Nodes of a kind have equal devices, so a run has the same type on each of them.
            if (start, end) not in types:
                types[start, end] = work.group_type(members)
            if work.useful(types[start, end]):
                rows.append(Group(types[start, end], members))
    return rows


def deal_evenly(groups: Sequence[Group], replicas: int, layers: int) -> list[list[Group]]:
    """Fastest group first, always to the replica with the least; no replica gets more groups than layers."""
    dealt: list[list[Group]] = [[] for _ in range(replicas)]
    heap = [(0.0, index) for index in range(replicas)]
    heapify(heap)
    for group in sorted(groups, key=lambda group: group.kind, reverse=True):
        if not heap:
            break
        power, index = heappop(heap)
        dealt[index].append(group)
        if len(dealt[index]) < layers:
            heappush(heap, (power + group.kind.rate, index))
    return dealt


def deal_in_turn(groups: Sequence[Group], replicas: int, layers: int) -> list[list[Group]]:
    """Equally many groups each, the fastest to the first replicas, so that the slow ones share a replica."""
    ordered = sorted(groups, key=lambda group: group.kind, reverse=True)
    base, extra = divmod(len(ordered), replicas)
    dealt, start = [], 0
    for index in range(replicas):
        count = base + (index >= replicas - extra)
        dealt.append(ordered[start : start + min(count, layers)])
        start += count
    return dealt


def replica_counts(work: Work, groups: int, rate: float) -> list[int]:
    """Numbers of replicas to try: the given one, or those that look best for equal groups of that rate."""
    asked = work.instance.replicas
    if asked is not None:
        return [asked] if asked <= groups else []
    scored = []
    for count in range(1, min(groups, work.microbatches) + 1):
        stages = min(groups // count, work.layers)
        most = -(-work.microbatches // count)
        busiest = -(-work.layers // stages) * work.total / work.layers / rate
        time = work.total / rate + 2 * work.transfer_s * (stages - 1) + (most - 1) * busiest
        scored.append((time, count))
    return [count for _, count in sorted(scored)[:6]]


def repairs(stages: Sequence[Sequence[Device]], work: Work) -> Iterator[list[Group]]:
    """Ways to go on with a running replica, its stages in place: every cut of each damaged stage in turn."""
    fixed: list[list[Group] | None] = []
    menus: list[list[list[Group]]] = []
    for members in stages:
        alive = tuple(sorted((d for d in members if d.speed > 0), key=lambda d: (-d.speed, -d.memory)))
        signature = tuple((device.speed, device.memory) for device in alive)
        menu = (
            [
                rows
                for cut in cut_menu(signature, work.instance.legal_sizes)
                if (rows := _useful(alive, cut, work))
            ]
            if alive
            else []
        )
        damaged = len(alive) < len(members) or alive[-1].speed < SLOW * alive[0].speed
        if len(members) in work.instance.legal_sizes and not damaged:
            fixed.append([Group(work.group_type(members), tuple(members))])
            menus.append([])
        else:
            fixed.append(None)
            menus.append([*menu, []])
    yield from _combine(fixed, menus)


def _useful(alive: Sequence[Device], cut: Sequence[tuple[int, int]], work: Work) -> list[Group]:
    rows = [Group(work.group_type(alive[a:b]), tuple(alive[a:b])) for a, b in cut]
    return [group for group in rows if work.useful(group.kind)]


def _combine(
    fixed: Sequence[list[Group] | None], menus: Sequence[list[list[Group]]]
) -> Iterator[list[Group]]:
    """Vary the damaged stages one by one around the choice that keeps the most speed in each."""
    choice = [
        max(menu, key=lambda rows: sum(group.kind.rate for group in rows)) if menu else [] for menu in menus
    ]

    def whole(replaced: int, rows: list[Group]) -> list[Group]:
        parts = [
            kept if kept is not None else (rows if index == replaced else choice[index])
            for index, kept in enumerate(fixed)
        ]
        return [group for part in parts for group in part]

    yield whole(-1, [])
    for index, menu in enumerate(menus):
        for rows in menu:
            yield whole(index, rows)
