"""Good splits of the layers over an ordered pipeline, quickly: for pipelines too deep to search exactly."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

import numpy as np

from jobs.core.layout.work import GroupType, Work
from jobs.core.pipeline.makespan import one_f_one_b_makespan, one_f_one_b_makespans

Kinds = tuple[GroupType, ...]
Layers = tuple[int, ...]
BISECTIONS = 40
CLIMBS = 12


class SplitSearch:
    """Quick splits and exact times of ordered groups, remembered."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._both = work.both.tolist()
        self._forward = work.forward.tolist()
        self._backward = work.backward.tolist()
        self._memory = work.memory.tolist()
        self._quick: dict[Kinds, Layers | None] = {}
        self._lean: dict[tuple[Kinds, int], tuple[Kinds, Layers] | None] = {}
        self._times: dict[tuple[Kinds, Layers, int], float] = {}
        self._stage_times: dict[tuple[Kinds, Layers], tuple[list[float], list[float]]] = {}

    def quick(self, kinds: Kinds) -> Layers | None:
        """Split so that the busiest stage is as short as can be, early stages filled first; None: no room."""
        if kinds not in self._quick:
            self._quick[kinds] = self._least_busiest(kinds)
        return self._quick[kinds]

    def lean(self, kinds: Kinds, microbatches: int) -> tuple[Kinds, Layers] | None:
        """Some of the groups, the longest stage first, and layers for them; layers must be alike.

        For a busiest stage of given length the fill is shortest if the fastest groups take all they may, and
        groups that are left without a layer drop out. Of all such lengths the one that suits the number of
        micro-batches is taken.
        """
        key = (tuple(sorted(kinds, reverse=True)), microbatches)
        if key not in self._lean:
            self._lean[key] = self._leanest(*key)
        return self._lean[key]

    def _leanest(self, kinds: Kinds, microbatches: int) -> tuple[Kinds, Layers] | None:
        work = self.work
        layer_s = work.total / work.layers
        best: tuple[float, list[int]] | None = None
        for busiest in sorted(self._lengths(kinds)):
            # Longer stages only pay where that shortens the way through all of them.
            if best is not None and work.total / kinds[0].rate + (microbatches - 1) * busiest >= best[0]:
                break
            left, through, layers = work.layers, 0.0, []
            for kind in kinds:
                count = min(left, int(kind.capacity), int(busiest * kind.rate / layer_s * (1 + 1e-9)))
                layers.append(count)
                left -= count
                through += count * layer_s / kind.rate + (2 * work.transfer_s if count else 0.0)
                if not left:
                    break
            time = through + (microbatches - 1) * busiest
            if not left and (best is None or time < best[0] * (1 - 1e-12)):
                best = (time, layers)
        if best is None:
            return None
        rows = [
            (count / kind.rate, kind, count) for kind, count in zip(kinds, best[1], strict=False) if count
        ]
        rows.sort(reverse=True)
        return tuple(kind for _, kind, _ in rows), tuple(count for _, _, count in rows)

    def _lengths(self, kinds: Kinds) -> set[float]:
        """Lengths that a busiest stage may have."""
        work = self.work
        layer_s = work.total / work.layers
        least = work.total / sum(kind.rate for kind in kinds) * (1 - 1e-9)
        lengths = set()
        for kind in set(kinds):
            first = max(1, int(least * kind.rate / layer_s))
            for count in range(first, min(int(kind.capacity), work.layers) + 1):
                if count * layer_s / kind.rate >= least:
                    lengths.add(count * layer_s / kind.rate)
        return lengths

    def _least_busiest(self, kinds: Kinds) -> Layers | None:
        work = self.work
        if len(kinds) > work.layers or not work.enough_memory(kinds):
            return None
        low = work.total / sum(kind.rate for kind in kinds)
        high = work.total / min(kind.rate for kind in kinds) + 1e-30
        best = self._fill(kinds, high * (1 + 1e-9))
        if best is None:
            return None
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            layers = self._fill(kinds, middle)
            if layers is None:
                low = middle
            else:
                best, high = layers, middle
            if high - low <= 1e-9 * high:
                break
        return best

    def _fill(self, kinds: Kinds, busiest: float) -> Layers | None:
        """Give each stage in turn as many layers as take at most `busiest`; None if some are left over."""
        end, total, layers = 0, self.work.layers, []
        for index, kind in enumerate(kinds):
            latest = total - (len(kinds) - 1 - index)
            by_time = bisect_right(self._both, self._both[end] + busiest * kind.rate * (1 + 1e-12)) - 1
            by_memory = bisect_right(self._memory, self._memory[end] + kind.capacity * (1 + 1e-12)) - 1
            reach = min(latest, by_time, by_memory)
            if reach <= end:
                return None
            layers.append(reach - end)
            end = reach
        return tuple(layers) if end == total else None

    def stage_times(self, kinds: Kinds, layers: Layers) -> tuple[list[float], list[float]]:
        """Forward and backward seconds per stage."""
        key = (kinds, layers)
        if key not in self._stage_times:
            forward_s, backward_s, end = [], [], 0
            for kind, count in zip(kinds, layers, strict=True):
                start, end = end, end + count
                forward_s.append((self._forward[end] - self._forward[start]) / kind.rate)
                backward_s.append((self._backward[end] - self._backward[start]) / kind.rate)
            self._stage_times[key] = forward_s, backward_s
        return self._stage_times[key]

    def time(self, kinds: Kinds, layers: Layers, microbatches: int) -> float:
        """Exact makespan."""
        key = (kinds, layers, microbatches)
        if key not in self._times:
            forward_s, backward_s = self.stage_times(kinds, layers)
            self._times[key] = one_f_one_b_makespan(forward_s, backward_s, microbatches, self.work.transfer_s)
        return self._times[key]

    def line(self, kinds: Kinds, layers: Layers) -> tuple[float, float]:
        """First micro-batch and each further one: an upper bound on the makespan, without simulation."""
        forward_s, backward_s = self.stage_times(kinds, layers)
        both = [f + b for f, b in zip(forward_s, backward_s, strict=True)]
        return sum(both) + 2 * self.work.transfer_s * (len(both) - 1), max(both)

    def holds(self, kinds: Kinds, layers: Layers) -> bool:
        """Whether every stage has room for its layers."""
        end = 0
        for kind, count in zip(kinds, layers, strict=True):
            start, end = end, end + count
            if self._memory[end] - self._memory[start] > kind.capacity * (1 + 1e-12):
                return False
        return True

    def climb(
        self, kinds: Kinds, layers: Layers, microbatches: int, keep_going: Callable[[], bool]
    ) -> Layers:
        """Move single layers between stages while the makespan falls."""
        best = self.time(kinds, layers, microbatches)
        for _ in range(CLIMBS):
            if not keep_going():
                break
            neighbours = self._neighbours(kinds, layers)
            if not neighbours:
                break
            order = np.argsort(self._rough(kinds, neighbours, microbatches), kind="stable")
            for index in order[:3]:
                time = self.time(kinds, neighbours[index], microbatches)
                if time < best * (1 - 1e-12):
                    best, layers = time, neighbours[index]
                    break
            else:
                break
        return layers

    def _neighbours(self, kinds: Kinds, layers: Layers) -> list[Layers]:
        forward_s, backward_s = self.stage_times(kinds, layers)
        both = [f + b for f, b in zip(forward_s, backward_s, strict=True)]
        givers = [i for i in sorted(range(len(both)), key=lambda i: (-both[i], i)) if layers[i] > 1]
        found = []
        for giver in givers if len(layers) <= 8 else givers[:6]:
            for taker in range(len(layers)):
                if taker != giver:
                    moved = list(layers)
                    moved[giver] -= 1
                    moved[taker] += 1
                    if self.holds(kinds, tuple(moved)):
                        found.append(tuple(moved))
        return found

    def _rough(self, kinds: Kinds, rows: Sequence[Layers], microbatches: int) -> np.ndarray:
        """Makespans of many splits: a few micro-batches simulated, the others at the busiest stage's pace."""
        work, stages = self.work, len(kinds)
        edges = np.pad(np.cumsum(np.array(rows), axis=1), ((0, 0), (1, 0)))
        rates = np.array([kind.rate for kind in kinds])
        forward = np.diff(work.forward[edges], axis=1) / rates
        backward = np.diff(work.backward[edges], axis=1) / rates
        simulated = min(microbatches, stages + 4)
        times = one_f_one_b_makespans(forward.T, backward.T, simulated, work.transfer_s)
        return np.asarray(times + (microbatches - simulated) * (forward + backward).max(axis=1))

    def arrange(
        self, kinds: Kinds, microbatches: int, keep_going: Callable[[], bool]
    ) -> tuple[Kinds, Layers] | None:
        """Order groups well: fastest first, then single groups moved while the makespan falls."""
        order = tuple(sorted(kinds, reverse=True))
        layers = self.quick(order)
        for other in (tuple(reversed(order)), kinds) if layers is None else ():
            order, layers = other, self.quick(other)
            if layers is not None:
                break
        if layers is None:
            return None
        best = self.time(order, layers, microbatches)
        usual = max(set(order), key=lambda kind: (order.count(kind), kind))
        for _ in range(2):
            for kind in sorted(set(order) - {usual}):
                best, order, layers = self._insert(kind, best, order, layers, microbatches, keep_going)
        return order, layers

    def _insert(
        self,
        kind: GroupType,
        best: float,
        order: Kinds,
        layers: Layers,
        microbatches: int,
        keep_going: Callable[[], bool],
    ) -> tuple[float, Kinds, Layers]:
        at = order.index(kind)
        rest = order[:at] + order[at + 1 :]
        for position in range(len(order)):
            if not keep_going():
                break
            other = rest[:position] + (kind,) + rest[position:]
            split = self.quick(other)
            if split is not None:
                time = self.time(other, split, microbatches)
                if time < best * (1 - 1e-12):
                    best, order, layers = time, other, split
        return best, order, layers
