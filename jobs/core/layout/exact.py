"""Optimal layouts with proof, for instances small enough.

A replica needs a usage (how many devices of each class) and runs as many micro-batches as its best pipeline
can in less than the best time known. V(u), that number, starts as an upper bound from closed forms. A
max-plus recursion over usages finds the most micro-batches D disjoint replicas could run together. If that
is less than the instance has, the best known time is optimal. Otherwise the replicas of one such packing are
searched exactly: either their V falls and the recursion is repeated, or the packing is a better plan.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import product

import numpy as np
from numpy.typing import NDArray

from jobs.core.layout.grouping import Cut, Kinds, NodeClasses, TooLarge, Usage, cuts_of, nodes_of
from jobs.core.layout.pipelines import OutOfTime, Pipeline, PipelineSearch, most_microbatches
from jobs.core.layout.work import Work

MOST_USAGES = 20_000
MOST_PAIRS = 4_000_000
MOST_CUTS = 60_000
MOST_JOINS = 1_000_000
MOST_NODE_USAGES = 4_096
MOST_STAGES = 12


@dataclass(slots=True)
class _Option:
    """One multiset of groups: bounds on the micro-batches it runs under the present limit."""

    kinds: Kinds
    most: int
    known: dict[int, Pipeline] = field(default_factory=dict)  # exact best by micro-batches
    at_least: dict[int, float] = field(default_factory=dict)  # proven lower bounds by micro-batches


@dataclass(frozen=True, slots=True)
class Packed:
    """A replica of an exact plan: its devices by class, its pipeline and its micro-batches."""

    usage: Usage
    pipeline: Pipeline
    microbatches: int


class ExactSearch:
    """Branch and bound over all layouts of one instance."""

    def __init__(self, work: Work, keep_going: Callable[[], bool]) -> None:
        self.work = work
        self.keep_going = keep_going
        self.nodes = nodes_of(work.instance)
        self._refuse_large()
        self.cuts = [cuts_of(node, work) for node in self.nodes]
        self.shape = tuple(count + 1 for node in self.nodes for count in node.counts)
        self.options: dict[Kinds, _Option] = {}
        self.by_usage: dict[Usage, list[_Option]] = {}
        self._combine()

    def _refuse_large(self) -> None:
        counts = [count for node in self.nodes for count in node.counts]
        per_node = max(math.prod(count + 1 for count in node.counts) for node in self.nodes)
        pairs = math.prod((count + 1) * (count + 2) // 2 for count in counts)
        usages = math.prod(count + 1 for count in counts)
        if per_node > MOST_NODE_USAGES or pairs > MOST_PAIRS or usages > MOST_USAGES or len(counts) > 30:
            raise TooLarge

    def _combine(self) -> None:
        """List, for every usage of the whole cluster, the multisets of groups it can form."""
        combined: dict[Usage, dict[Kinds, None]] = {(): {(): None}}
        joins = 0
        for table in self.cuts:
            grown: dict[Usage, dict[Kinds, None]] = {}
            total = 0
            for (usage, multisets), (more, cuts) in product(combined.items(), table.items()):
                target = grown.setdefault(usage + more, {})
                joins += len(multisets) * len(cuts)
                if joins > MOST_JOINS:
                    raise TooLarge
                for kinds, cut in product(multisets, cuts):
                    if len(kinds) + len(cut.kinds) <= min(self.work.layers, MOST_STAGES):
                        target[tuple(sorted(kinds + cut.kinds, reverse=True))] = None
                    elif self.work.layers > MOST_STAGES:
                        raise TooLarge
                total += len(target)
                if total > MOST_CUTS:
                    raise TooLarge
            combined = grown
        for usage, multisets in combined.items():
            for kinds in multisets:
                if kinds:
                    option = self.options.setdefault(kinds, _Option(kinds, self.work.microbatches))
                    self.by_usage.setdefault(usage, []).append(option)

    def improve(self, limit: float) -> tuple[list[Packed] | None, float]:
        """Return the optimal plan if it beats `limit` (else None) and its time. Raises OutOfTime.

        `limit` may be infinite.
        """
        best: list[Packed] | None = None
        self.best = None
        while True:
            packing = self._next_packing(limit)
            if packing is None:
                return best, limit
            best = self._share(packing, limit)
            limit = max(packed.pipeline.time for packed in best)
            self.best = best

    best: list[Packed] | None = None

    def bound(self, low: float, high: float, keep_going: Callable[[], bool]) -> float:
        """A lower bound between two times, from the closed forms alone."""
        true = {kinds: option.most for kinds, option in self.options.items()}
        while high - low > 2e-3 * high and keep_going():
            middle = (low + high) / 2
            for kinds, option in self.options.items():
                # What held under a longer limit holds under a shorter one.
                option.most = most_microbatches(self.work, kinds, middle, true[kinds]) if true[kinds] else 0
            if self._pack() is None:
                low = middle
            else:
                high = middle
        return low

    def _next_packing(self, limit: float) -> list[tuple[Usage, _Option, int]] | None:
        for option in self.options.values():
            option.most = min(
                option.most,
                most_microbatches(self.work, option.kinds, limit, option.most) if option.most else 0,
            )
        confirmed: dict[Usage, tuple[_Option, int]] = {}
        while True:
            if not self.keep_going():
                raise OutOfTime
            usages = self._pack()
            if usages is None:
                return None
            unsure = [usage for usage in usages if usage not in confirmed]
            if not unsure:
                return [(usage, *confirmed[usage]) for usage in usages]
            for usage in dict.fromkeys(unsure):
                claimed = max(option.most for option in self.by_usage[usage])
                option = self._confirm(usage, limit)
                confirmed[usage] = (option, option.most)
                if option.most < claimed:
                    break

    def _confirm(self, usage: Usage, limit: float) -> _Option:
        """Lower the options of a usage until the largest `most` among them is true."""
        while True:
            option = max(self.by_usage[usage], key=lambda option: option.most)
            if option.most == 0 or self.pipeline(option, option.most, limit) is not None:
                return option
            option.most = self._true_most(option, option.most - 1, limit)

    def _true_most(self, option: _Option, high: int, limit: float) -> int:
        """The most micro-batches, at most `high`, that an option runs in less than `limit`."""
        low, step = 0, 1
        while low < high:
            probe = max(low + 1, high - step + 1) if low == 0 else (low + high + 1) // 2
            if self.pipeline(option, probe, limit) is not None:
                low = probe
            else:
                high, step = probe - 1, step * 2
        return low

    def pipeline(self, option: _Option, microbatches: int, limit: float) -> Pipeline | None:
        """The best pipeline of an option if it is faster than `limit`."""
        known = option.known.get(microbatches)
        if known is None and option.at_least.get(microbatches, 0.0) < limit:
            search = PipelineSearch(self.work, option.kinds, microbatches)
            known = search.best(limit, self.keep_going)
            if known is None:
                option.at_least[microbatches] = limit
            else:
                option.known[microbatches] = known
        return known if known is not None and known.time < limit * (1 - 1e-11) else None

    def _pack(self) -> list[Usage] | None:
        """Usages of disjoint replicas that may run all micro-batches together, or None if none can."""
        value = np.zeros(self.shape, dtype=np.int64)
        for usage, options in self.by_usage.items():
            value[usage] = max(option.most for option in options)
        below = _best_below(value)
        useful = [usage for usage in self.by_usage if value[usage] > below[usage]]
        asked, target = self.work.instance.replicas, self.work.microbatches
        layers = [np.zeros(self.shape, dtype=np.int64)]
        most_replicas = asked or min(target, sum(size - 1 for size in self.shape))
        for replicas in range(1, most_replicas + 1):
            layers.append(_one_more(layers[-1], value, useful, replicas == 1))
            total = int(layers[-1].max())
            if total < 0:
                return None
            if total >= target and asked in (None, replicas):
                return _trace(layers, value, useful)
        return None

    def _share(self, packing: Sequence[tuple[Usage, _Option, int]], limit: float) -> list[Packed]:
        """Deal the instance's micro-batches by rate, no replica more than it runs under the limit."""
        counts = [1] * len(packing)
        powers = [sum(kind.rate for kind in option.kinds) for _, option, _ in packing]
        heap = [(2 / power, index) for index, power in enumerate(powers) if packing[index][2] > 1]
        heapify(heap)
        for _ in range(self.work.microbatches - len(packing)):
            _, index = heappop(heap)
            counts[index] += 1
            if counts[index] < packing[index][2]:
                heappush(heap, ((counts[index] + 1) / powers[index], index))
        return [
            Packed(usage, self._under(option, count, limit), count)
            for (usage, option, _), count in zip(packing, counts, strict=True)
        ]

    def _under(self, option: _Option, microbatches: int, limit: float) -> Pipeline:
        # Fewer micro-batches are never slower; the margin keeps rounding from saying otherwise.
        found = self.pipeline(option, microbatches, limit * (1 + 1e-9))
        assert found is not None
        return found

    def node_cuts(self, usage: Usage, kinds: Kinds) -> list[tuple[NodeClasses, Cut]]:
        """One way for the nodes to form the groups of a replica."""
        chosen: list[tuple[NodeClasses, Cut]] = []
        wanted = {kind: kinds.count(kind) for kind in kinds}

        def choose(index: int, start: int) -> bool:
            if index == len(self.nodes):
                return not any(wanted.values())
            width = len(self.nodes[index].counts)
            for cut in self.cuts[index].get(usage[start : start + width], ()):
                for kind in cut.kinds:
                    wanted[kind] = wanted.get(kind, 0) - 1
                chosen.append((self.nodes[index], cut))
                if min(wanted.values()) >= 0 and choose(index + 1, start + width):
                    return True
                chosen.pop()
                for kind in cut.kinds:
                    wanted[kind] += 1
            return False

        if not choose(0, 0):
            raise AssertionError("an option is always made of cuts")
        return chosen


def _best_below(value: NDArray[np.int64]) -> NDArray[np.int64]:
    """For every usage the largest value of one with strictly fewer devices; 0 for none."""
    within = value.copy()
    for axis in range(value.ndim):
        np.maximum.accumulate(within, axis=axis, out=within)
    below = np.zeros_like(value)
    for axis in range(value.ndim):
        later = tuple(slice(1, None) if other == axis else slice(None) for other in range(value.ndim))
        earlier = tuple(slice(None, -1) if other == axis else slice(None) for other in range(value.ndim))
        np.maximum(below[later], within[earlier], out=below[later])
    return below


def _one_more(
    before: NDArray[np.int64], value: NDArray[np.int64], useful: Sequence[Usage], first: bool
) -> NDArray[np.int64]:
    """after[u] = the largest value[v] + before[u - v] over replicas v within u; -1 where there is none."""
    after = np.full_like(before, -1)
    for usage in useful:
        target = after[tuple(slice(count, None) for count in usage)]
        rest = before[tuple(slice(0, size - count) for size, count in zip(before.shape, usage, strict=True))]
        total = rest + value[usage]
        if not first:
            total = np.where(rest < 0, -1, total)
        np.maximum(target, total, out=target)
    return after


def _trace(layers: list[NDArray[np.int64]], value: NDArray[np.int64], useful: Sequence[Usage]) -> list[Usage]:
    """The replicas behind the largest entry of the last layer."""
    at = tuple(int(i) for i in np.unravel_index(int(layers[-1].argmax()), layers[-1].shape))
    replicas = []
    for number in range(len(layers) - 1, 0, -1):
        for usage in useful:
            rest = tuple(a - b for a, b in zip(at, usage, strict=True))
            if min(rest) < 0 or (number > 1 and layers[number - 1][rest] < 0):
                continue
            if layers[number][at] == value[usage] + layers[number - 1][rest]:
                replicas.append(usage)
                at = rest
                break
    return replicas
