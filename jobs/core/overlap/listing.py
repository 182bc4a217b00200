"""List scheduling: of what is ready, first what has the longest way to go (Graham 1966; Hu 1961).

Unlike the interleavings this order need not be that of the program, nor of a tile: a weight gradient that was
computed before an all-reduce can move under it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from jobs.core.overlap.bounds import tails_s
from jobs.core.overlap.graph import Graph, Kind, Steps

PATIENCES = (0.0, 0.5)
"""How long compute may stand still for a more urgent wait, in lengths of what could run meanwhile."""


def list_orders(graph: Graph) -> Iterator[Steps]:
    """One order for each patience."""
    tails = tails_s(graph)
    for patience in PATIENCES:
        yield _List(graph, tails, patience).run()


@dataclass
class _List:
    """Simulates while it chooses: every collective is issued as soon as its inputs are, waits when needed."""

    graph: Graph
    tails_s: list[float]
    patience: float
    clock_s: float = 0.0
    steps: Steps = field(default_factory=list)
    compute: list[tuple[float, int]] = field(default_factory=list)
    waits: list[tuple[float, int]] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    comms: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.graph.nodes)
        self.missing = [len(node.inputs) for node in self.graph.nodes]
        self.users: list[list[int]] = [[] for _ in range(count)]
        for index, node in enumerate(self.graph.nodes):
            for source in node.inputs:
                self.users[source].append(index)
        self.ends_s = [0.0] * count
        self.group_free_s = [0.0] * len(self.graph.groups)
        self.region = 0
        self.held: list[int] = []

    def run(self) -> Steps:
        """The order; nothing crosses a host barrier."""
        left = [0] * (max(self.graph.region, default=0) + 1)
        for region in self.graph.region:
            left[region] += 1
        for index, missing in enumerate(self.missing):
            if not missing:
                self._ready(index)
        for self.region, count in enumerate(left):
            held, self.held = self.held, []
            for index in held:
                self._ready(index)
            for _ in range(count):
                self._issue(self._next())
        return self.steps

    def _ready(self, index: int) -> None:
        node = self.graph.nodes[index]
        if self.graph.region[index] != self.region:
            self.held.append(index)
        elif node.kind is Kind.COMM:
            heappush(self.comms, (-self.tails_s[index] - node.time_s, index))
        elif node.kind is Kind.WAIT and self.graph.waits_for[index]:
            end_s = max(self.ends_s[comm] for comm in self.graph.waits_for[index])
            heappush(self.waits, (end_s, index))
        elif node.kind is Kind.COMPUTE and node.time_s > 0:
            heappush(self.compute, (-self.tails_s[index] - node.time_s, index))
        else:
            heappush(self.free, index)

    def _next(self) -> int:
        """What costs nothing now, then collectives, then the more urgent of compute and the next wait."""
        if self.free:
            return heappop(self.free)
        if self.comms:
            return heappop(self.comms)[1]
        if not self.waits:
            return heappop(self.compute)[1]
        end_s, wait = self.waits[0]
        if not self.compute or end_s <= self.clock_s or self._worth_waiting(end_s, wait):
            return heappop(self.waits)[1]
        return heappop(self.compute)[1]

    def _worth_waiting(self, end_s: float, wait: int) -> bool:
        urgency, index = self.compute[0]
        gap_s = end_s - self.clock_s
        return self.tails_s[wait] > -urgency and gap_s <= self.patience * self.graph.nodes[index].time_s

    def _issue(self, index: int) -> None:
        node = self.graph.nodes[index]
        if node.kind is Kind.COMPUTE:
            self.clock_s += node.time_s
            self.ends_s[index] = self.clock_s
        elif node.kind is Kind.COMM:
            group = self.graph.group_of[index]
            start_s = max(self.group_free_s[group], self.clock_s)
            self.ends_s[index] = self.group_free_s[group] = start_s + node.time_s
        else:
            for comm in self.graph.waits_for[index]:
                self.clock_s = max(self.clock_s, self.ends_s[comm])
        self.steps.append((index,))
        for user in self.users[index]:
            self.missing[user] -= 1
            if not self.missing[user]:
                self._ready(user)
