"""The best pipeline of given groups: their order and the layers of each, exact by branch and bound.

Rows of partial pipelines are expanded a whole level at a time in NumPy and thrown away by lower bounds on
the makespan T of m micro-batches. For stage i with times f, b, t = f + b, P the sum of t over earlier stages,
c the transfer time and S stages:

* T >= m t_i + P_i + 2 c i: stage i cannot start earlier, and every gradient goes home through the others;
* T >= sum t + (m-1) b_i + max(0, m-S+i) f_i + 2 c (S-1): after the first micro-batch came back to stage i,
  the stage still has that much to do.

Splitting what is left continuously over the groups left, fastest first, gives the most work that fits under
the first bound: sum r_j q^j (T - P) / m with q = 1 - 1/m.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobs.core.layout.work import GroupType, Work
from jobs.core.pipeline.makespan import one_f_one_b_makespans

CHUNK_ROWS = 20_000
MOST_LISTED = 50_000  # candidates that are cheaper listed outright than searched
SIMULATED_AT_ONCE = 2_000
FEW_TESTED = 1_000
STRICT = 1 - 1e-11  # an improvement smaller than this is rounding
LARGEST_TIME = 1e200  # stands for no limit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class OutOfTime(Exception):
    """The search was told to stop; what it had found so far stands."""


class Pipeline(NamedTuple):
    """Groups in stage order, the layers of each, and the makespan for the micro-batches searched for."""

    time: float
    kinds: tuple[GroupType, ...]
    layers: tuple[int, ...]


class _Rows(NamedTuple):
    """Partial pipelines of one length, one row each."""

    code: Ints  # which groups are used, mixed radix over the distinct types
    first: Ints  # layers placed
    prefix: Floats  # sum of stage times so far
    tail: Floats  # the largest (m-1) b_i + max(0, m-S+i) f_i so far
    order: Ints  # (rows, placed) type numbers
    ends: Ints  # (rows, placed) layer boundaries

    def only(self, chosen: slice | NDArray[np.bool_]) -> "_Rows":
        """The rows of a slice or mask."""
        return _Rows(
            self.code[chosen],
            self.first[chosen],
            self.prefix[chosen],
            self.tail[chosen],
            self.order[chosen],
            self.ends[chosen],
        )

    @staticmethod
    def joined(parts: "Sequence[_Rows]") -> "_Rows":
        """All rows of several parts."""
        return _Rows(
            np.concatenate([part.code for part in parts]),
            np.concatenate([part.first for part in parts]),
            np.concatenate([part.prefix for part in parts]),
            np.concatenate([part.tail for part in parts]),
            np.concatenate([part.order for part in parts]),
            np.concatenate([part.ends for part in parts]),
        )


class PipelineSearch:
    """Searches over one multiset of groups; all of them are used, at least one layer each."""

    def __init__(
        self, work: Work, kinds: Sequence[GroupType], microbatches: int, keep_order: bool = False
    ) -> None:
        self.work = work
        self.m = microbatches
        self.stages = len(kinds)
        self.fixed = tuple(kinds) if keep_order else None
        self.types = sorted(set(kinds), reverse=True)
        counts = [list(kinds).count(kind) for kind in self.types]
        self.radix = np.cumprod([1] + [count + 1 for count in counts])
        self.counts = np.array(counts)
        self.rates = np.array([kind.rate for kind in self.types])
        self.capacities = np.array([kind.capacity for kind in self.types])
        self.number = {kind: index for index, kind in enumerate(self.types)}
        self._tabulate_rest()

    def _tabulate_rest(self) -> None:
        """For every set of used groups: what those left can do."""
        used = np.arange(self.radix[-1])[:, None] // self.radix[:-1] % (self.counts + 1)
        left = self.counts - used
        q = 1 - 1 / self.m
        exponent = np.concatenate([np.zeros((len(left), 1), int), np.cumsum(left, axis=1)[:, :-1]], axis=1)
        if q > 0:
            share = q**exponent * (1 - q**left) * self.m
        else:
            share = ((exponent == 0) & (left > 0)).astype(float)
        self.rest_power = (share * self.rates).sum(axis=1)
        self.rest_capacity = (left * self.capacities).sum(axis=1)
        self.rest_count = left.sum(axis=1)
        self.rest_fastest = np.where(left > 0, self.rates, 0).max(axis=1)
        slowness = np.where(left > 0, 1 / self.rates, 0)
        self.rest_slowest_s = self.work.least_both * slowness.max(axis=1)
        self.rest_once_s = self.work.least_both * (left * slowness).sum(axis=1)

    def best(self, limit: float, keep_going: Callable[[], bool] = lambda: True) -> Pipeline | None:
        """The fastest pipeline if it is faster than `limit`, else None. Raises OutOfTime."""
        if self.stages > self.work.layers:
            return None
        limit = min(limit, LARGEST_TIME)
        if self._candidates() <= MOST_LISTED:
            return self._list_all(limit)
        nothing = np.zeros(1, dtype=np.int64)
        empty = np.zeros((1, 0), dtype=np.int64)
        stack = [_Rows(nothing, nothing, np.zeros(1), np.zeros(1), empty, empty)]
        found: Pipeline | None = None
        while stack:
            if not keep_going():
                raise OutOfTime
            rows = stack.pop()
            if rows.order.shape[1] == self.stages:
                better = self._fastest(rows, limit)
                if better is not None:
                    found, limit = better, better.time
                continue
            grown = self._grow(rows, limit * STRICT)
            for start in range(0, len(grown.code), CHUNK_ROWS):
                stack.append(grown.only(slice(start, start + CHUNK_ROWS)))
        return found

    def _candidates(self) -> int:
        splits = math.comb(self.work.layers - 1, self.stages - 1)
        if self.fixed is not None:
            return splits
        return splits * math.factorial(self.stages) // math.prod(math.factorial(int(c)) for c in self.counts)

    def _list_all(self, limit: float) -> Pipeline | None:
        """Every order with every split: bounds first, then simulation, the most promising first."""
        work, m, last = self.work, self.m, self.stages - 1
        if self.fixed is not None:
            orders = np.array([[self.number[kind] for kind in self.fixed]])
        else:
            orders = _orders(tuple(int(count) for count in self.counts))
        edges = _splits(work.layers, self.stages)
        room = np.diff(work.memory[edges], axis=1)[None] <= self.capacities[orders][:, None]
        which, split = np.nonzero(room.all(axis=2))
        rates = self.rates[orders[which]]
        forward = np.diff(work.forward[edges], axis=1)[split] / rates
        backward = np.diff(work.backward[edges], axis=1)[split] / rates
        both = forward + backward
        through = both.cumsum(axis=1)
        position = np.arange(self.stages)
        start = through - both + 2 * work.transfer_s * position
        tail = (m - 1) * backward + np.maximum(0, m - 1 - last + position) * forward
        bound = np.maximum(
            (m * both + start).max(axis=1), through[:, -1] + tail.max(axis=1) + 2 * work.transfer_s * last
        )
        rank = np.argsort(bound, kind="stable")
        best = -1
        for begin in range(0, len(rank), SIMULATED_AT_ONCE):
            some = rank[begin : begin + SIMULATED_AT_ONCE]
            some = some[bound[some] < limit * STRICT]
            if not len(some):
                break
            times = one_f_one_b_makespans(forward[some].T, backward[some].T, m, work.transfer_s)
            first = int(times.argmin())
            if times[first] < limit * STRICT:
                best, limit = int(some[first]), float(times[first])
        if best < 0:
            return None
        kinds = tuple(self.types[number] for number in orders[which[best]])
        return Pipeline(limit, kinds, tuple(int(n) for n in np.diff(edges[split[best]])))

    def _grow(self, rows: _Rows, limit: float) -> _Rows:
        position = rows.order.shape[1]
        last = position == self.stages - 1
        numbers = range(len(self.types)) if self.fixed is None else [self.number[self.fixed[position]]]
        grown = []
        for number in numbers:
            free = rows.code // self.radix[number] % (self.counts[number] + 1) < self.counts[number]
            index = np.flatnonzero(free)
            if not len(index):
                continue
            most = self.work.layers - (self.stages - 1 - position) - int(rows.first[index].min())
            for layers in [0] if last else range(1, most + 1):
                part = self._place(rows, index, number, layers, position, limit)
                if part is None and layers:
                    break
                if part is not None and len(part.code):
                    grown.append(part)
        return _Rows.joined(grown) if grown else rows.only(slice(0))

    def _place(
        self, rows: _Rows, index: Ints, number: int, layers: int, position: int, limit: float
    ) -> _Rows | None:
        """Give `layers` layers (0: all that are left) to a group of a type; None if that fits no row."""
        work, rate, m = self.work, self.rates[number], self.m
        first = rows.first[index]
        end = np.full_like(first, work.layers) if not layers else first + layers
        after = self.stages - 1 - position
        inside = end <= work.layers - after
        first, end, index = first[inside], end[inside], index[inside]
        room = work.memory[end] - work.memory[first] <= self.capacities[number]
        first, end, index = first[room], end[room], index[room]
        forward = (work.forward[end] - work.forward[first]) / rate
        backward = (work.backward[end] - work.backward[first]) / rate
        prefix = rows.prefix[index]
        alive = m * (forward + backward) + prefix + 2 * work.transfer_s * position < limit
        if not alive.any():
            return None
        first, end, index = first[alive], end[alive], index[alive]
        forward, backward = forward[alive], backward[alive]
        prefix = prefix[alive] + forward + backward
        tail = np.maximum(rows.tail[index], (m - 1) * backward + max(0, m - after - 1) * forward)
        code = rows.code[index] + self.radix[number]
        possible = self._rest_can(code, end, prefix, tail, position, limit)
        order = np.column_stack([rows.order[index], np.full(len(index), number)])
        ends = np.column_stack([rows.ends[index], end])
        return _Rows(code, end, prefix, tail, order, ends).only(possible)

    def _rest_can(
        self, code: Ints, end: Ints, prefix: Floats, tail: Floats, position: int, limit: float
    ) -> NDArray[np.bool_]:
        work = self.work
        undone = work.total - work.both[end]
        hold = work.memory[-1] - work.memory[end] <= self.rest_capacity[code] * (1 + 1e-12)
        time_left = limit - prefix - 2 * work.transfer_s * (position + 1)
        compute = undone * self.m <= self.rest_power[code] * time_left * (1 + 1e-12)
        slowest = self.rest_slowest_s[code] * self.m < time_left
        fastest = self.rest_fastest[code]
        extra = np.maximum(undone - self.rest_count[code] * work.least_both, 0.0)
        soonest = prefix + self.rest_once_s[code]
        soonest += np.divide(extra, fastest, out=np.zeros_like(undone), where=fastest > 0)
        back = soonest + tail + 2 * work.transfer_s * (self.stages - 1) < limit
        done = self.rest_count[code] == 0
        return np.asarray(back & (done | (hold & compute & slowest)))

    def _fastest(self, rows: _Rows, limit: float) -> Pipeline | None:
        work = self.work
        rates = self.rates[rows.order].T
        edges = np.column_stack([np.zeros(len(rows.code), dtype=np.int64), rows.ends])
        forward = np.diff(work.forward[edges], axis=1).T / rates
        backward = np.diff(work.backward[edges], axis=1).T / rates
        times = one_f_one_b_makespans(forward, backward, self.m, work.transfer_s)
        best = int(times.argmin())
        if times[best] >= limit * STRICT:
            return None
        kinds = tuple(self.types[number] for number in rows.order[best])
        return Pipeline(float(times[best]), kinds, tuple(int(n) for n in np.diff(edges[best])))


@lru_cache(maxsize=256)
def _splits(layers: int, stages: int) -> Ints:
    """Boundaries of every split of the layers into stages of at least one; shape (splits, stages + 1)."""
    chosen = list(combinations(range(1, layers), stages - 1))
    inner = np.array(chosen, dtype=np.int64).reshape(len(chosen), stages - 1)
    return np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (0, layers)))


@lru_cache(maxsize=256)
def _orders(counts: tuple[int, ...]) -> Ints:
    """Every order of the types, type i counts[i] times; shape (orders, sum of counts)."""
    rows: list[list[int]] = []

    def extend(prefix: list[int], left: list[int]) -> None:
        if not any(left):
            rows.append(prefix)
        for number, count in enumerate(left):
            if count:
                left[number] -= 1
                extend([*prefix, number], left)
                left[number] += 1

    extend([], list(counts))
    return np.array(rows, dtype=np.int64)


def most_microbatches(work: Work, kinds: Sequence[GroupType], limit: float, most: int) -> int:
    """An upper bound on the micro-batches any pipeline of exactly these groups runs in less than `limit`.

    The largest m up to `most` that no lower bound excludes; 0 if not even one micro-batch can.
    """
    if len(kinds) > work.layers or not work.enough_memory(kinds):
        return 0
    rates = np.sort([kind.rate for kind in kinds])[::-1]
    stages = len(rates)
    once = work.least_both * float((1 / rates).sum())
    through = once + max(0.0, work.total - stages * work.least_both) / rates[0]
    through += 2 * work.transfer_s * (stages - 1)
    limit *= 1 + 1e-12
    if through >= limit:
        return 0
    busiest = _least_busiest(work, rates)

    def first_refused(m: Floats) -> int:
        """Index of the first number of micro-batches that a bound excludes; their count if none."""
        power = ((1 - 1 / m)[:, None] ** np.arange(stages) * rates).sum(axis=1)
        part = work.least_backward_part
        again = busiest * ((m - 1) * part + np.maximum(m - stages, 0) * (1 - part))
        possible = (m * work.total < power * limit) & (m * busiest < limit) & (through + again < limit)
        return int(np.append(~possible, True).argmax())

    # First in strides, then one by one between the last that passes and the first that does not.
    stride = max(1, most // FEW_TESTED)
    strides = np.append(np.arange(1, most, stride, dtype=float), most)
    at = first_refused(strides)
    low = int(strides[at - 1]) if at else 0
    high = int(strides[at]) if at < len(strides) else most + 1
    return low + first_refused(np.arange(low + 1, high, dtype=float)) if high - low > 1 else low


def _least_busiest(work: Work, rates: Floats) -> float:
    """A lower bound on the time of the busiest stage: no split of the layers does better."""
    floor = max(work.total / float(rates.sum()), work.least_both / float(rates[-1]))
    if not work.uniform or work.total == 0:
        return floor
    layer = work.total / work.layers
    # Hand out layers one by one to the stage that would be the least busy with it.
    heap = [(2 * layer / rate, rate) for rate in rates.tolist()]
    heapify(heap)
    busiest = floor
    for _ in range(work.layers - len(rates)):
        time, rate = heappop(heap)
        busiest = max(busiest, time)
        heappush(heap, (time + layer / rate, rate))
    return busiest
