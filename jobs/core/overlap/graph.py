"""The graph that is scheduled: compute, communication, waits, views and host barriers in program order."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

Steps = list[tuple[int, ...]]
"""An issue order: node indexes, a bucket of merged nodes as one longer tuple."""


class Kind(StrEnum):
    """What a node occupies: the compute stream, its group's comm stream, or nothing."""

    COMPUTE = "compute"
    COMM = "comm"
    WAIT = "wait"
    VIEW = "view"
    SYNC = "sync"


@dataclass(frozen=True)
class Node:
    """One operator.

    Attributes:
        time_s: seconds on its stream when nothing else runs (0 for waits, views and barriers).
        size_bytes: bytes of the storage it allocates (0 for waits, views and barriers).
        inputs: indexes of earlier nodes, each once.
        tile: tile stream, or None for nodes that all tiles share.
        merge: nodes of one kind, group and label may be merged into a bucket.
        latency_s: the part of `time_s` that a bucket pays only once.
        with_input: its storage is one of several results of its input, and appears together with that.
    """

    name: str
    kind: Kind
    time_s: float = 0.0
    size_bytes: float = 0
    inputs: tuple[int, ...] = ()
    group: str | None = None
    tile: int | None = None
    merge: str | None = None
    latency_s: float = 0.0
    with_input: bool = False


@dataclass(frozen=True)
class Graph:
    """Nodes in program order and what the schedule has to respect.

    Attributes:
        outputs: indexes of the nodes whose storages live to the end.
        budget_bytes: hard limit of the peak, or None.
        compute_slowdown, comm_slowdown: while compute and some communication run together, each progresses
            at the rate 1 / (1 + slowdown).
        bucket_is_one_storage: the results of merged communications lie in one buffer, which goes when the
            last of them does; PyTorch's coalesced collectives give a storage to each.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    budget_bytes: float | None = None
    compute_slowdown: float = 0.0
    comm_slowdown: float = 0.0
    bucket_is_one_storage: bool = True

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Communication groups in the order of their first use."""
        return tuple(dict.fromkeys(node.group for node in self.nodes if node.group is not None))

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """Index into `groups` of each node, -1 for nodes that do not communicate."""
        number = {name: index for index, name in enumerate(self.groups)}
        return tuple(-1 if node.group is None else number[node.group] for node in self.nodes)

    @cached_property
    def roots(self) -> tuple[tuple[int, ...], ...]:
        """The storages (named by their producer) that each node's value lies in."""
        found: list[tuple[int, ...]] = []
        for index, node in enumerate(self.nodes):
            if node.kind in (Kind.COMPUTE, Kind.COMM):
                found.append((index,))
            elif node.kind is Kind.SYNC:
                found.append(())
            else:
                found.append(_union(found, node.inputs))
        return tuple(found)

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """The storages that each node needs while it runs."""
        return tuple(_union(self.roots, node.inputs) for node in self.nodes)

    @cached_property
    def births_bytes(self) -> tuple[float, ...]:
        """What appears when each node is issued: its storage, and those of results that are picked later."""
        found: list[float] = []
        for node in self.nodes:
            found.append(0 if node.with_input else node.size_bytes)
            if node.with_input:
                found[node.inputs[0]] += node.size_bytes
        return tuple(found)

    @cached_property
    def waits_for(self) -> tuple[tuple[int, ...], ...]:
        """The collectives that each wait ends; empty for all other nodes."""
        return tuple(
            tuple(root for root in self.reads[index] if self.nodes[root].kind is Kind.COMM)
            if node.kind is Kind.WAIT
            else ()
            for index, node in enumerate(self.nodes)
        )

    @cached_property
    def waits_of(self) -> dict[int, tuple[int, ...]]:
        """The waits of each collective in program order; empty for a collective nobody waits for."""
        found: dict[int, list[int]] = {i: [] for i, node in enumerate(self.nodes) if node.kind is Kind.COMM}
        for wait, comms in enumerate(self.waits_for):
            for comm in comms:
                found[comm].append(wait)
        return {comm: tuple(waits) for comm, waits in found.items()}

    @cached_property
    def region(self) -> tuple[int, ...]:
        """Which stretch between host barriers a node belongs to; each barrier is a stretch of its own."""
        found: list[int] = []
        current = 0
        for node in self.nodes:
            if node.kind is Kind.SYNC:
                found.append(current + 1)
                current += 2
            else:
                found.append(current)
        return tuple(found)

    @property
    def slowed(self) -> bool:
        """Whether overlap costs speed."""
        return self.compute_slowdown > 0 or self.comm_slowdown > 0

    def bucket_time_s(self, members: Sequence[int]) -> float:
        """Seconds of one node, or of several merged ones: the latency is paid once, the rest adds up."""
        if len(members) == 1:
            return self.nodes[members[0]].time_s
        chosen = [self.nodes[member] for member in members]
        return max(node.latency_s for node in chosen) + sum(node.time_s - node.latency_s for node in chosen)

    def merge_key(self, index: int) -> tuple[Kind, str | None, str] | None:
        """Nodes with equal keys may be merged; None for nodes that may not, or where it changes nothing."""
        node = self.nodes[index]
        if node.merge is None or node.kind not in (Kind.COMPUTE, Kind.COMM):
            return None
        return node.kind, node.group, node.merge


def _union(values: Sequence[tuple[int, ...]], inputs: tuple[int, ...]) -> tuple[int, ...]:
    if len(inputs) == 1:
        return values[inputs[0]]
    return tuple(dict.fromkeys(root for source in inputs for root in values[source]))


def given_order(graph: Graph) -> Steps:
    """The program order."""
    return [(index,) for index in range(len(graph.nodes))]
