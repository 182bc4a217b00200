"""The best interleaving of tile streams by label search.

A state is how far each stream has come; a label is the clocks there: compute, one for each group, and the
ends of the collectives still in flight. The clocks are monotone, so a label that is no better in any clock
than another one of its state can go, and nothing is lost. Live bytes depend on the state alone, so the
memory budget closes transitions and needs no place in the label. With merging a transition may issue the
next nodes of several streams as one bucket; under a budget the buckets still alive are then part of the
state.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from operator import add, le
from typing import Any

from jobs.core.overlap.graph import Graph, Kind, Steps
from jobs.core.overlap.lifetimes import Buckets, Lifetimes, MemoryState
from jobs.core.overlap.remaining import Remaining
from jobs.core.overlap.streams import Positions, TileStreams

Clocks = tuple[float, ...]
Label = tuple[Clocks, Any, tuple[tuple[int, ...], ...]]
"""Clocks, the label it came from, the steps issued between."""
Key = tuple[Positions, Buckets]

LABEL_LIMIT = 250_000
_LARGEST_RUN = 4
_STREAMS_COMBINED = 4
_ROUNDING = 1e-12


@dataclass
class _Cell:
    at: Positions
    memory: MemoryState
    in_flight: tuple[int, ...]
    addends: list[float] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)


@dataclass(frozen=True)
class Found:
    """The best order below the limit, if any; `complete` when nothing was cut off by a limit of size."""

    steps: Steps | None
    complete: bool
    labels: int


@dataclass
class LabelSearch:
    """One search; `run` does it.

    Attributes:
        upper_s: only orders faster than this are of interest.
        merging: also merge nodes that stand next to each other.
        label_limit: labels kept before the search narrows to a beam.
        least_width: labels of a layer that even the narrowest beam keeps.
    """

    tiles: TileStreams
    upper_s: float
    merging: bool = False
    label_limit: int = LABEL_LIMIT
    least_width: int = 4
    complete: bool = True

    def __post_init__(self) -> None:
        self.graph: Graph = self.tiles.graph
        self.lifetimes = Lifetimes(self.graph)
        self.remaining = Remaining(self.tiles, self.merging)
        self.layers: dict[int, dict[Key, _Cell]] = {}

    def run(self) -> Found:
        """Search layer by layer, a layer being the number of nodes taken from the streams."""
        self._begin()
        last = sum(self.tiles.lengths)
        kept = 0
        for depth in range(last):
            cells = [cell for cell in self.layers.pop(depth, {}).values() if cell.labels]
            for cell in cells:
                if len(cell.labels) > 1:
                    cell.labels = undominated(cell.labels)
            left = self.label_limit - kept
            self._narrow(cells, max(self.least_width, 3 * left // (last - depth)))
            kept += sum(len(cell.labels) for cell in cells)
            for cell in cells:
                if cell.labels:
                    self._expand(cell)
        ends = [label for cell in self.layers.get(last, {}).values() for label in cell.labels]
        best = min(ends, key=lambda label: max(label[0]), default=None)
        return Found(None if best is None else _path(best), self.complete, kept)

    def _begin(self) -> None:
        origin = _Cell((0,) * len(self.tiles.streams), MemoryState(), ())
        steps = tuple((index,) for index in self.tiles.first_shared)
        origin.labels.append(((0.0,) * (1 + len(self.graph.groups)), None, ()))
        self._transit(origin, origin.at, steps)

    def _expand(self, cell: _Cell) -> None:
        for after, first in self._moves(cell.at):
            shared = self.tiles.shared_between(cell.at, after)
            self._transit(cell, after, (first, *((index,) for index in shared)))

    def _moves(self, at: Positions) -> Iterator[tuple[Positions, tuple[int, ...]]]:
        """Every next step: the head of one stream, or a bucket of the next nodes of some streams."""
        keys = set()
        for stream, members in enumerate(self.tiles.streams):
            if at[stream] < len(members) and self.tiles.legal(members[at[stream]], at):
                node = members[at[stream]]
                yield (*at[:stream], at[stream] + 1, *at[stream + 1 :]), (node,)
                keys.add(self.graph.merge_key(node) if self.merging else None)
        for key in sorted(keys - {None}, key=repr):
            yield from self._bucket_moves(at, key)

    def _bucket_moves(self, at: Positions, key: object) -> Iterator[tuple[Positions, tuple[int, ...]]]:
        streams = self.tiles.streams
        runs = [self._run_length(stream, at, key) for stream in range(len(streams))]
        for lengths in self._bucket_lengths(runs):
            members = tuple(
                streams[k][at[k] + offset] for k, length in enumerate(lengths) for offset in range(length)
            )
            if len(members) > 1 and self._may_gain(members):
                yield tuple(come + length for come, length in zip(at, lengths, strict=True)), members

    def _may_gain(self, members: tuple[int, ...]) -> bool:
        """Whether a bucket saves time, or, under a budget, inputs: any wait for it frees them."""
        nodes = [self.graph.nodes[member] for member in members]
        latencies = [node.latency_s for node in nodes]
        budgeted = self.graph.budget_bytes is not None
        return sum(latencies) > max(latencies) or (budgeted and nodes[0].kind is Kind.COMM)

    def _bucket_lengths(self, runs: list[int]) -> Iterator[tuple[int, ...]]:
        """How many nodes of each stream go into a bucket: all combinations of few streams, or all streams."""
        active = [stream for stream, run in enumerate(runs) if run]
        chosen = active[:_STREAMS_COMBINED]
        for lengths in product(*(range(runs[stream] + 1) for stream in chosen)):
            of = dict(zip(chosen, lengths, strict=True))
            yield tuple(of.get(stream, 0) for stream in range(len(runs)))
        if len(active) > len(chosen):
            self.complete = False
            yield tuple(runs)

    def _run_length(self, stream: int, at: Positions, key: object) -> int:
        members = self.tiles.streams[stream]
        length = 0
        for node in members[at[stream] :]:
            if self.graph.merge_key(node) != key or not self.tiles.legal(node, at):
                break
            if length == _LARGEST_RUN or (length and len(self.tiles.streams) > 2):
                self.complete = False
                break
            length += 1
        return length

    def _transit(self, cell: _Cell, after: Positions, steps: tuple[tuple[int, ...], ...]) -> None:
        """Carry every label of a state over a move, unless the budget closes it."""
        memory = cell.memory
        if self.graph.budget_bytes is not None:
            for step in steps:
                memory, during = self.lifetimes.after(memory, step)
                if during > self.graph.budget_bytes:
                    return
        operations, layout, chosen = self._compile(cell.in_flight, steps)
        layer = self.layers.setdefault(sum(after), {})
        target = layer.get((after, memory.buckets))
        if target is None:
            addends = self.remaining.addends(after, layout)
            target = layer[after, memory.buckets] = _Cell(after, memory, layout, addends)
        addends, labels = target.addends, target.labels
        limit = self.upper_s * (1.0 - _ROUNDING)
        for label in cell.labels:
            clocks = _advance(label[0], operations, chosen)
            if max(map(add, clocks, addends)) < limit:
                labels.append((clocks, label, steps))

    def _compile(
        self, in_flight: tuple[int, ...], steps: tuple[tuple[int, ...], ...]
    ) -> tuple[list[tuple[int, float, int]], tuple[int, ...], list[int]]:
        """Steps as operations on the clocks, the collectives then in flight, and where their ends are."""
        first = 1 + len(self.graph.groups)
        slots = {comm: first + position for position, comm in enumerate(in_flight)}
        width = first + len(in_flight)
        operations: list[tuple[int, float, int]] = []
        graph = self.graph
        for step in steps:
            kind = graph.nodes[step[0]].kind
            if kind is Kind.COMPUTE:
                operations.append((0, graph.bucket_time_s(step), 0))
            elif kind is Kind.COMM:
                operations.append((1, graph.bucket_time_s(step), 1 + graph.group_of[step[0]]))
                slots.update({comm: width for comm in step if graph.waits_of[comm]})
                width += 1
            elif kind is Kind.WAIT:
                for comm in graph.waits_for[step[0]]:
                    if comm in slots:
                        operations.append((2, 0.0, slots.pop(comm)))
        layout = tuple(sorted(slots))
        return operations, layout, [*range(first), *[slots[comm] for comm in layout]]

    def _narrow(self, cells: list[_Cell], width: int) -> None:
        """Keep the most promising labels of a layer that has too many."""
        if sum(len(cell.labels) for cell in cells) <= width:
            return
        self.complete = False
        ranked = []
        for number, cell in enumerate(cells):
            for label in cell.labels:
                reach = max(map(add, label[0], cell.addends))
                ranked.append((reach, sum(label[0]), number, label))
            cell.labels = []
        ranked.sort(key=lambda entry: entry[:3])
        for _, _, number, label in ranked[:width]:
            cells[number].labels.append(label)


def _advance(clocks: Clocks, operations: list[tuple[int, float, int]], chosen: list[int]) -> Clocks:
    """Clocks after some operations; one that lies behind the compute clock can as well stand on it."""
    work = list(clocks)
    for code, time_s, slot in operations:
        if code == 0:
            work[0] += time_s
        elif code == 1:
            end = max(work[slot], work[0]) + time_s
            work[slot] = end
            work.append(end)
        elif work[slot] > work[0]:
            work[0] = work[slot]
    compute = work[0]
    return tuple([work[slot] if work[slot] > compute else compute for slot in chosen])


def undominated(labels: list[Label]) -> list[Label]:
    """Labels that no other one beats or equals in every clock; of equal ones the first stays."""
    labels.sort(key=lambda label: label[0])
    kept: list[Label] = []
    for label in labels:
        clocks = label[0]
        for other in kept:
            if all(map(le, other[0], clocks)):
                break
        else:
            kept.append(label)
    return kept


def _path(label: Label | None) -> Steps:
    pieces = []
    while label is not None:
        pieces.append(label[2])
        label = label[1]
    return [step for piece in reversed(pieces) for step in piece]
