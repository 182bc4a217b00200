"""What no order can beat: critical path, load of each stream, and head-load-tail of each stream.

The head-load-tail bound (Carlier, "The one-machine sequencing problem", 1982) is the largest
min head + sum of times + min tail over all sets of nodes of one stream. It equals the makespan of the
preemptive schedule that always runs the available node with the longest tail, hence n log n.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from math import fsum

from jobs.core.overlap.graph import Graph, Kind

_ON_COMPUTE_STREAM = (Kind.COMPUTE, Kind.WAIT, Kind.VIEW, Kind.SYNC)


@dataclass(frozen=True)
class Bounds:
    """Seconds: each is at most the makespan of every legal order."""

    critical_path_s: float
    compute_load_s: float
    group_load_s: dict[str, float]
    head_load_tail_s: float

    @property
    def lower_bound_s(self) -> float:
        return max(
            self.critical_path_s, self.compute_load_s, *self.group_load_s.values(), self.head_load_tail_s
        )


def bounds(graph: Graph, *, merging: bool = False) -> Bounds:
    """Lower bounds of the makespan; with `merging` also for every way to merge nodes into buckets."""
    heads, tails = heads_s(graph), tails_s(graph)
    nodes = graph.nodes
    path = max((heads[i] + node.time_s + tails[i] for i, node in enumerate(nodes)), default=0.0)
    streams: dict[str | None, list[int]] = {None: [], **{name: [] for name in graph.groups}}
    for index, node in enumerate(nodes):
        if node.kind in (Kind.COMPUTE, Kind.COMM):
            streams[node.group].append(index)
    loads = {name: _load(graph, members, merging) for name, members in streams.items()}
    works = [work_s(graph, index, merging) for index in range(len(nodes))]
    head_load_tail = max(_preemptive(members, heads, works, tails) for members in streams.values())
    compute_load = loads.pop(None)
    groups = {name: load for name, load in loads.items() if name is not None}
    return Bounds(path, compute_load, groups, head_load_tail)


def work_s(graph: Graph, index: int, merging: bool) -> float:
    """The least a node adds to its stream: a merged one may share its latency."""
    node = graph.nodes[index]
    return node.time_s - node.latency_s if merging and graph.merge_key(index) else node.time_s


def heads_s(graph: Graph) -> list[float]:
    """Earliest start of each node with unlimited streams; barriers hold back what is below them."""
    ends: list[float] = []
    heads: list[float] = []
    barrier = issued = 0.0
    for node in graph.nodes:
        head = max(barrier, max((ends[source] for source in node.inputs), default=0.0))
        if node.kind is Kind.SYNC:
            head = barrier = max(head, issued)
        heads.append(head)
        ends.append(head + node.time_s)
        if node.kind in (Kind.COMPUTE, Kind.WAIT):
            issued = max(issued, ends[-1])
    return heads


def tails_s(graph: Graph) -> list[float]:
    """Longest path from the end of each node to the end of the program."""
    tails = [0.0] * len(graph.nodes)
    behind_barrier = later = 0.0
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if node.kind in _ON_COMPUTE_STREAM:
            tails[index] = max(tails[index], behind_barrier)
        if node.kind is Kind.SYNC:
            tails[index] = behind_barrier = max(tails[index], later)
        through = node.time_s + tails[index]
        later = max(later, through)
        for source in node.inputs:
            tails[source] = max(tails[source], through)
    return tails


def _load(graph: Graph, members: list[int], merging: bool) -> float:
    latencies: dict[object, float] = {}
    if merging:
        for index in members:
            key = graph.merge_key(index)
            if key is not None:
                latencies[key] = max(latencies.get(key, 0.0), graph.nodes[index].latency_s)
    return fsum([work_s(graph, index, merging) for index in members] + list(latencies.values()))


def _preemptive(members: list[int], heads: list[float], works: list[float], tails: list[float]) -> float:
    """Makespan with tails of the preemptive schedule by longest tail."""
    arrivals = sorted((index for index in members if works[index] > 0.0), key=heads.__getitem__)
    ready: list[tuple[float, float]] = []
    now = latest = 0.0
    position = 0
    while position < len(arrivals) or ready:
        if not ready:
            now = max(now, heads[arrivals[position]])
        while position < len(arrivals) and heads[arrivals[position]] <= now:
            index = arrivals[position]
            heappush(ready, (-tails[index], works[index]))
            position += 1
        minus_tail, left = heappop(ready)
        until = heads[arrivals[position]] if position < len(arrivals) else now + left
        if now + left <= until:
            now += left
            latest = max(latest, now - minus_tail)
        else:
            heappush(ready, (minus_tail, left - (until - now)))
            now = until
    return latest
