"""Tile streams: who may be issued when, and the orders that take the streams in turn.

Each tile's nodes keep their program order. Nodes without a tile go to their earliest legal place. Nothing
crosses a host barrier. All of this becomes one vector per node: how far each stream must have come.
"""

from dataclasses import dataclass, field
from functools import cached_property
from operator import le
from random import Random

from jobs.core.overlap.graph import Graph, Kind, Steps

Positions = tuple[int, ...]
"""How many nodes of each stream have been issued."""


@dataclass(frozen=True)
class TileStreams:
    """The streams of a graph in the order of their tile numbers; a graph without tiles is one stream."""

    graph: Graph

    @cached_property
    def streams(self) -> tuple[tuple[int, ...], ...]:
        """Node indexes of each stream in program order."""
        tiles: list[int | None] = []
        tiles += sorted({node.tile for node in self.graph.nodes if node.tile is not None})
        found: dict[int | None, list[int]] = {tile: [] for tile in tiles or [None]}
        for index, node in enumerate(self.graph.nodes):
            if node.tile in found:
                found[node.tile].append(index)
        return tuple(tuple(members) for members in found.values())

    @cached_property
    def place(self) -> dict[int, tuple[int, int]]:
        """Stream and position of each node that has one."""
        return {node: (k, p) for k, members in enumerate(self.streams) for p, node in enumerate(members)}

    @cached_property
    def needs(self) -> tuple[Positions, ...]:
        """How far each stream must have come before a node may be issued."""
        found: list[Positions] = []
        after: list[Positions] = []  # how far the streams have come once a node has been issued
        barrier: Positions = (0,) * len(self.streams)
        come = [0] * len(self.streams)
        region = 0
        for index, (node, its_region) in enumerate(zip(self.graph.nodes, self.graph.region, strict=True)):
            if its_region != region:
                region, barrier = its_region, tuple(come)
            need = barrier
            for source in node.inputs:
                if after[source] is not need:
                    need = tuple(map(max, need, after[source]))
            found.append(need)
            if index in self.place:
                stream, position = self.place[index]
                come[stream] = position + 1
                if need[stream] <= position:
                    need = (*need[:stream], position + 1, *need[stream + 1 :])
            after.append(need)
        return tuple(found)

    @cached_property
    def _shared_at(self) -> dict[tuple[int, int], list[int]]:
        found: dict[tuple[int, int], list[int]] = {}
        for index in range(len(self.graph.nodes)):
            if index not in self.place:
                for stream, position in enumerate(self.needs[index]):
                    if position:
                        found.setdefault((stream, position), []).append(index)
        return found

    @cached_property
    def first_shared(self) -> list[int]:
        """Nodes without a tile that may go before everything."""
        return [i for i in range(len(self.graph.nodes)) if i not in self.place and not any(self.needs[i])]

    def legal(self, node: int, at: Positions) -> bool:
        """Whether the streams have come far enough for a node."""
        return all(map(le, self.needs[node], at))

    def shared_between(self, before: Positions, after: Positions) -> list[int]:
        """Nodes without a tile that become legal by a move, in program order."""
        if not self._shared_at:
            return []
        if sum(after) == sum(before) + 1:
            stream = next(k for k, position in enumerate(after) if position != before[k])
            return [i for i in self._shared_at.get((stream, after[stream]), ()) if self.legal(i, after)]
        found: set[int] = set()
        for stream, (low, high) in enumerate(zip(before, after, strict=True)):
            for position in range(low + 1, high + 1):
                found.update(i for i in self._shared_at.get((stream, position), ()) if self.legal(i, after))
        return sorted(found)

    @property
    def lengths(self) -> Positions:
        return tuple(len(members) for members in self.streams)


@dataclass
class Emitter:
    """Builds an order by taking nodes from the streams."""

    tiles: TileStreams
    steps: Steps = field(default_factory=list)
    at: Positions = ()

    def __post_init__(self) -> None:
        self.at = (0,) * len(self.tiles.streams)
        self.steps = [(index,) for index in self.tiles.first_shared]

    def head(self, stream: int) -> int | None:
        """The next node of a stream if it may be issued now."""
        members = self.tiles.streams[stream]
        if self.at[stream] == len(members):
            return None
        node = members[self.at[stream]]
        return node if self.tiles.legal(node, self.at) else None

    def take(self, stream: int) -> None:
        """Issue the next node of a stream and the shared nodes that it makes legal."""
        node = self.tiles.streams[stream][self.at[stream]]
        after = (*self.at[:stream], self.at[stream] + 1, *self.at[stream + 1 :])
        self.steps.append((node,))
        self.steps += [(index,) for index in self.tiles.shared_between(self.at, after)]
        self.at = after

    @property
    def finished(self) -> bool:
        return self.at == self.tiles.lengths


def segment_ends(graph: Graph, members: tuple[int, ...]) -> list[int]:
    """Cut a stream before every wait and every host barrier; the wait is the first node of its segment."""
    cuts = [p for p, node in enumerate(members) if p and graph.nodes[node].kind in (Kind.WAIT, Kind.SYNC)]
    return [*cuts, len(members)]


def round_robin(tiles: TileStreams, lead: int = 0) -> Steps:
    """Segmented round robin: one segment of each stream in turn.

    Args:
        lead: turns by which each stream starts later than the one before it.
    """
    emitter = Emitter(tiles)
    ends = [segment_ends(tiles.graph, members) for members in tiles.streams]
    upcoming = [0] * len(ends)
    turn = 0
    while not emitter.finished:
        moved = False
        for stream in range(len(ends)):
            if upcoming[stream] < len(ends[stream]) and turn >= stream * lead:
                moved |= _take_until(emitter, stream, ends[stream][upcoming[stream]])
                upcoming[stream] += emitter.at[stream] == ends[stream][upcoming[stream]]
        turn += 1
        if not moved and turn > lead * len(ends):
            raise AssertionError("the earliest node of the program is always legal")
    return emitter.steps


def _take_until(emitter: Emitter, stream: int, end: int) -> bool:
    before = emitter.at[stream]
    while emitter.at[stream] < end and emitter.head(stream) is not None:
        emitter.take(stream)
    return emitter.at[stream] > before


def tile_by_tile(tiles: TileStreams) -> Steps:
    """Each stream as far as it goes before the next one begins."""
    emitter = Emitter(tiles)
    while not emitter.finished:
        for stream, members in enumerate(tiles.streams):
            _take_until(emitter, stream, len(members))
    return emitter.steps


def random_turns(tiles: TileStreams, rng: Random) -> Steps:
    """The streams in turns of random length: an order like any other, to try estimates on."""
    emitter = Emitter(tiles)
    while not emitter.finished:
        ready = [stream for stream in range(len(tiles.streams)) if emitter.head(stream) is not None]
        stream = rng.choice(ready)
        _take_until(emitter, stream, min(len(tiles.streams[stream]), emitter.at[stream] + rng.randint(1, 12)))
    return emitter.steps
