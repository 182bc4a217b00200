"""How much time must still pass after a state of the tile streams: the label search prunes by it."""

from dataclasses import dataclass
from functools import cached_property

from jobs.core.overlap.bounds import tails_s, work_s
from jobs.core.overlap.graph import Kind
from jobs.core.overlap.streams import Positions, TileStreams

_SHARED_COUNTED = 200
"""With more shared nodes their work is left out of the bound, which stays one but costs less."""


@dataclass
class Remaining:
    """Suffixes of each stream: work left, longest way to the end, shortest tail."""

    tiles: TileStreams
    merging: bool

    def __post_init__(self) -> None:
        self._memo: dict[Positions, list[float]] = {}

    @cached_property
    def tails(self) -> list[float]:
        return tails_s(self.tiles.graph)

    def addends(self, at: Positions, in_flight: tuple[int, ...]) -> list[float]:
        """For each clock of a label: the least time from it to the end of the schedule."""
        found = self._memo.get(at)
        if found is None:
            found = self._memo[at] = self._streams_left(at)
        return [*found, *[self.tails[comm] for comm in in_flight]]

    def _streams_left(self, at: Positions) -> list[float]:
        longest = max([rows[come] for rows, come in zip(self._longest, at, strict=True)])
        works = [rows[come] for rows, come in zip(self._work, at, strict=True)]
        tails = [rows[come] for rows, come in zip(self._tail, at, strict=True)]
        if self._shared:
            works.append(self._shared_work(at))
            tails.append(self._shared_tail)
        found = []
        for work, tail in zip(zip(*works, strict=True), zip(*tails, strict=True), strict=True):
            left = sum(work)
            found.append(left + min(tail) if left > 0.0 else 0.0)
        found[0] = max(found[0], longest)
        return found

    def _slot(self, index: int) -> int:
        """Clock that a node works on, -1 for none."""
        kind = self.tiles.graph.nodes[index].kind
        if kind is Kind.COMPUTE:
            return 0
        return 1 + self.tiles.graph.group_of[index] if kind is Kind.COMM else -1

    @cached_property
    def _shared(self) -> list[int]:
        nodes = range(len(self.tiles.graph.nodes))
        return [i for i in nodes if i not in self.tiles.place and self._slot(i) >= 0]

    def _shared_work(self, at: Positions) -> list[float]:
        work = [0.0] * (1 + len(self.tiles.graph.groups))
        if len(self._shared) > _SHARED_COUNTED:
            return work
        for index in self._shared:
            if not self.tiles.legal(index, at):
                work[self._slot(index)] += work_s(self.tiles.graph, index, self.merging)
        return work

    @cached_property
    def _shared_tail(self) -> list[float]:
        tail = [float("inf")] * (1 + len(self.tiles.graph.groups))
        for index in self._shared:
            tail[self._slot(index)] = min(tail[self._slot(index)], self.tails[index])
        return tail

    @cached_property
    def _longest(self) -> list[list[float]]:
        return [self._suffix_longest(members) for members in self.tiles.streams]

    def _suffix_longest(self, members: tuple[int, ...]) -> list[float]:
        found = [0.0]
        for index in reversed(members):
            found.append(max(found[-1], self.tiles.graph.nodes[index].time_s + self.tails[index]))
        return found[::-1]

    @cached_property
    def _work(self) -> list[list[list[float]]]:
        return [self._suffix_work(members) for members in self.tiles.streams]

    def _suffix_work(self, members: tuple[int, ...]) -> list[list[float]]:
        found = [[0.0] * (1 + len(self.tiles.graph.groups))]
        for index in reversed(members):
            row = list(found[-1])
            if self._slot(index) >= 0:
                row[self._slot(index)] += work_s(self.tiles.graph, index, self.merging)
            found.append(row)
        return found[::-1]

    @cached_property
    def _tail(self) -> list[list[list[float]]]:
        return [self._suffix_tail(members) for members in self.tiles.streams]

    def _suffix_tail(self, members: tuple[int, ...]) -> list[list[float]]:
        found = [[float("inf")] * (1 + len(self.tiles.graph.groups))]
        for index in reversed(members):
            row = list(found[-1])
            slot = self._slot(index)
            if slot >= 0:
                row[slot] = min(row[slot], self.tails[index])
            found.append(row)
        return found[::-1]
