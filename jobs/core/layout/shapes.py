"""Whole replicas worth having at given prices of groups: dynamic programming from the last stage.

A replica that runs m micro-batches in T has a time S through all its stages. For a given S every stage may
take so long and no longer (the two rules of `cheapest`, here with the true time behind a stage), and the way
through is kept short by a price on time. Every S, m and price on time makes one proposal; what a proposal
really runs in T is simulated, so nothing depends on how good the rules are.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobs.core.layout.supply import Supply
from jobs.core.pipeline.makespan import one_f_one_b_makespan

Shape = tuple[tuple[int, int], ...]  # (number of the group type, layers) of each stage, in order

THROUGH = (1.0, 1.03, 1.07, 1.13, 1.21, 1.33, 1.6)  # S, in the least there is
# more of S where the number of replicas is open, for replicas of few devices
SLOWLY = (2.0, 2.6, 3.5, 5.0, 7.0)
DEARNESS = (0.3, 1.0)  # price on time, in micro-batches a replica runs in it
NEAR = 0.25  # around the mean replica many numbers of micro-batches are tried
NEARBY = 16
FAR = (0.15, 0.3, 0.5, 1.45)  # in the mean replica's, beyond that
OPEN = (0.6, 1.7)  # the range in the mean replica's where the number of replicas is open,
OPEN_NEARBY = 24  # and how many are tried in it
WIDE, WIDELY = 4.0, 28  # the same before anything is known: so many times the mean replica's, up and down
LONGER = 1.08  # how much longer than its S a replica may really take
DEEPEST = 24  # stages
SHORT = 5  # stages up to which replicas differ little, so that more of them are proposed
AT_ONCE = 128
MOST_PROPOSED = 600
CLOSE = 1 + 1e-9

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Shapes:
    """Proposes replicas and says how many micro-batches each of them runs within a time."""

    def __init__(self, supply: Supply, share: float) -> None:
        """`share` are the micro-batches of the mean replica, about, where their number is open."""
        work = supply.work
        self.supply, self.share = supply, share
        self.open = work.instance.replicas is None
        room, need = sum(device.memory for device in work.instance.living), work.instance.memory_sums[-1]
        # More replicas than have room for the model would run fewer micro-batches each.
        self.least = work.microbatches * need / max(room, need, 1e-300)
        self.layers, self.transfer_s, self.part = work.layers, work.transfer_s, work.least_backward_part
        self.forward_s, self.backward_s = float(work.forward[1]), float(work.backward[1])
        self.layer_s = work.total / work.layers
        self.slowness = (self.layer_s / supply.rates).tolist()
        self._times: dict[tuple[Shape, int], float] = {}

    def at_most(self, shape: Shape, time: float) -> int:
        """Micro-batches that no replica of that shape exceeds within a time, without simulation."""
        slowness, transfer_s = self.slowness, 2 * self.transfer_s
        stages = [layers * slowness[number] for number, layers in shape]
        spare = time * CLOSE - sum(stages) - transfer_s * (len(stages) - 1)
        behind, again = 0.0, np.inf
        for after, stage_s in enumerate(reversed(stages)):
            # The rules of `cheapest` solved for m - 1, each where it applies.
            first = spare / stage_s + after * (1 - self.part)
            if first < after:
                first = spare / (stage_s * max(self.part, 1e-9))
            second = (spare - behind) / stage_s + after
            again = min(again, first, max(second, float(after)))
            behind += stage_s + transfer_s
        return max(0, int(again * CLOSE) + 1) if spare >= 0 else 0

    def most(self, shape: Shape, time: float) -> int:
        """Micro-batches that a replica runs within a time."""
        busiest = max(layers * self.slowness[number] for number, layers in shape)
        count = self.at_most(shape, time)
        while count > 0:
            taken = self.time(shape, count)
            if taken <= time * CLOSE:
                return count
            # One micro-batch less saves at most the busiest stage's time.
            count -= max(1, int((taken - time) / busiest))
        return 0

    def time(self, shape: Shape, microbatches: int) -> float:
        """Exact makespan."""
        key = (shape, microbatches)
        if key not in self._times:
            stages = [(layers / float(self.supply.rates[number])) for number, layers in shape]
            self._times[key] = one_f_one_b_makespan(
                [self.forward_s * size for size in stages],
                [self.backward_s * size for size in stages],
                microbatches,
                self.transfer_s,
            )
        return self._times[key]

    def proposals(
        self, prices: Floats, time: float, replica: float, spare: float, known: Collection[Shape]
    ) -> list[Shape]:
        """Replicas cheap for what they run, none of them known; prices are in micro-batches.

        One that runs m costs at most m - `replica` + `spare`.
        """
        counts = self._counts(wide=self.open and not known)
        rows = [
            (count, through, dear * self.share / time)
            for (through, dear), count in product(self._throughs(time), counts)
        ]
        found: dict[Shape, None] = {}
        for begin in range(0, len(rows), AT_ONCE):
            microbatches, through, dearness = np.array(rows[begin : begin + AT_ONCE], dtype=float).T
            budget = microbatches - replica + spare + dearness * through * LONGER
            cells = _Cells(self, prices, time, microbatches, through, dearness, budget)
            found.update(dict.fromkeys(map(self._ordered, cells.solved())))
        worth = prices.tolist()
        scored = []
        for shape in found:
            if shape not in known:
                run = self.at_most(shape, time)
                gain = run - sum(worth[number] for number, _ in shape)
                # Where there may be long and short ones: those that gain most for what they run.
                scored.append((-gain / max(run, 1) if self.open else -gain, shape))
        scored.sort()
        return [shape for _, shape in scored[:MOST_PROPOSED]]

    def _throughs(self, time: float) -> list[tuple[float, float]]:
        """Every S below a time with the prices on time to try for it."""
        least = self.layers * min(self.slowness)
        pairs = [*product(THROUGH, DEARNESS), *product(SLOWLY if self.open else (), DEARNESS[:1])]
        return [(least * factor, dear) for factor, dear in pairs if least * factor < time]

    def _counts(self, wide: bool) -> list[int]:
        if wide:
            low, high = max(1.0, self.least * OPEN[0], self.share / WIDE), max(1.0, self.share * WIDE)
            return np.unique(np.geomspace(low, high, WIDELY).round().astype(int)).tolist()
        least, most = OPEN if self.open else (1 - NEAR, 1 + NEAR)
        nearby = OPEN_NEARBY if self.open else NEARBY
        low, high = max(1, int(self.share * least)), int(self.share * most) + 1
        far = {max(1, round(self.share * factor)) for factor in FAR}
        near = np.unique(np.linspace(low, high, min(high - low + 1, nearby)).round().astype(int))
        return sorted(far | set(near.tolist()))

    def _ordered(self, shape: Shape) -> Shape:
        return tuple(sorted(shape, key=lambda stage: (-stage[1] * self.slowness[stage[0]], stage)))


class _Cells:
    """One proposal for every triple of micro-batches, time through all stages and price on time."""

    def __init__(
        self,
        shapes: Shapes,
        prices: Floats,
        time: float,
        microbatches: Floats,
        through: Floats,
        dear: Floats,
        budget: Floats,
    ) -> None:
        self.shapes, self.again = shapes, microbatches - 1
        self.spare = time - through
        ways = _ways(shapes, prices, float(self._longest(shapes.layers).max()))
        self.ways = [(number, layers) for number, layers, _, _ in ways]
        self.stage_s = np.array([stage_s for _, _, _, stage_s in ways])
        price = np.array([price for _, _, price, _ in ways])
        self.weights = price + dear[:, None] * (self.stage_s + 2 * shapes.transfer_s)
        left = np.arange(shapes.layers, -1, -1)
        self.fastest_s = min(shapes.slowness)
        # The longest way through what is placed, by layers placed.
        self.latest = through[:, None] * LONGER - self.fastest_s * left
        self._prune(budget)

    def _prune(self, budget: Floats) -> None:
        """Keep the ways that may be part of a replica within its budget, the others at the least weight."""
        layers = np.array([layers for _, layers in self.ways])
        least = (self.weights / layers).min(axis=1) if len(layers) else np.zeros(len(budget))
        room = budget - least * self.shapes.layers
        detour = self.stage_s - layers * self.fastest_s
        useful = self.weights - least[:, None] * layers <= room[:, None]
        useful &= detour <= self.latest[:, -1:] - self.fastest_s * self.shapes.layers
        kept = np.flatnonzero(useful.any(axis=0))
        self.ways = [self.ways[i] for i in kept]
        self.before = self.shapes.layers - layers[kept]  # the most layers placed before each way
        self.stage_s, self.weights = self.stage_s[kept], self.weights[:, kept]
        # The most that may be spent so far, by layers placed.
        self.most = budget[:, None] - least[:, None] * np.arange(self.shapes.layers, -1, -1)

    def _longest(self, after: int) -> Floats:
        """How long a stage with so many after it may take, by the first rule."""
        part = self.shapes.part
        left = self.again * part + np.maximum(self.again - after, 0) * (1 - part)
        return np.divide(self.spare, left, out=np.full_like(left, np.inf), where=left > 0) * CLOSE

    def solved(self) -> list[Shape]:
        """Of every cell the lightest replica of each number of stages.

        Where the number of replicas is open and stages are few, of each way to share out the layers.
        """
        layers, count = self.shapes.layers, len(self.again)
        best = np.full((count, layers + 1), np.inf)
        best[:, 0] = 0.0
        behind = np.zeros_like(best)
        found: list[Shape] = []
        taken: list[Ints] = []
        for after in range(min(DEEPEST, layers) if self.ways else 0):
            steps = self._steps(best, behind, after)
            best, behind, choice = self._lightest(steps, best.shape)
            whole = steps.only(np.flatnonzero(steps.ahead == layers))
            many = self.shapes.open and after < SHORT
            key = whole.cell * layers + (whole.placed if many else 0)
            for cell, placed, way in whole.first_of(key).rows():
                found.append((self.ways[way], *self._traced(cell, placed, taken)))
            taken.append(choice)
            best[:, layers] = np.inf
            if not np.isfinite(best).any():
                break
        return found

    def _steps(self, best: Floats, behind: Floats, after: int) -> "_Steps":
        """Every state with every way that the cell's rules let follow it, one more stage in front."""
        cell, placed = np.nonzero(np.isfinite(best))
        stage_s, between = self.stage_s, np.maximum(self.again - after, 0)[cell, None]
        passed = behind[cell, placed][:, None]
        allowed = (stage_s <= self._longest(after)[cell, None]) & (placed[:, None] <= self.before)
        allowed &= (passed + between * stage_s <= self.spare[cell, None] * CLOSE) | (between < 1)
        state, way = np.nonzero(allowed)
        cell, placed = cell[state], placed[state]
        ahead = placed + self.shapes.layers - self.before[way]
        weight = best[cell, placed] + self.weights[cell, way]
        time = passed[state, 0] + stage_s[way] + 2 * self.shapes.transfer_s
        kept = np.flatnonzero((weight <= self.most[cell, ahead]) & (time <= self.latest[cell, ahead]))
        return _Steps(cell, placed, ahead, way, weight, time).only(kept)

    def _lightest(self, steps: "_Steps", shape: tuple[int, ...]) -> tuple[Floats, Floats, Ints]:
        """The least weight by cell and layers, its time behind, and which way it was."""
        size = shape[0] * shape[1]
        best, behind, choice = np.full(size, np.inf), np.zeros(size), np.full(size, -1)
        chosen = steps.first_of(steps.cell * shape[1] + steps.ahead)
        at = chosen.cell * shape[1] + chosen.ahead
        best[at], behind[at], choice[at] = chosen.weight, chosen.time, chosen.way
        return best.reshape(shape), behind.reshape(shape), choice.reshape(shape)

    def _traced(self, cell: int, left: int, taken: Sequence[Ints]) -> Shape:
        stages = []
        for choice in reversed(taken):
            way = self.ways[choice[cell, left]]
            stages.append(way)
            left -= way[1]
        return tuple(stages)


class _Steps(NamedTuple):
    """Stages put in front: whose cell, layers placed before and after, which way, weight and time so far."""

    cell: Ints
    placed: Ints
    ahead: Ints
    way: Ints
    weight: Floats
    time: Floats

    def only(self, chosen: Ints) -> "_Steps":
        """Some of them."""
        cell, placed, ahead, way = (column[chosen] for column in self[:4])
        return _Steps(cell, placed, ahead, way, self.weight[chosen], self.time[chosen])

    def first_of(self, key: Ints) -> "_Steps":
        """The lightest of every key, by key; of several the last one."""
        if not len(key):
            return self
        least = np.full(int(key.max()) + 1, np.inf)
        np.minimum.at(least, key, self.weight)
        lightest = np.flatnonzero(self.weight == least[key])
        place = np.full(len(least), -1)
        place[key[lightest]] = lightest
        return self.only(place[place >= 0])

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Cell, layers placed before and way of each."""
        return zip(self.cell.tolist(), self.placed.tolist(), self.way.tolist(), strict=True)


def _ways(shapes: Shapes, prices: Floats, longest: float) -> list[tuple[int, int, float, float]]:
    """Stages worth forming (type, layers, price, time): of two with as many layers one is cheaper."""
    ways = []
    for layers in range(1, shapes.layers + 1):
        fit = np.flatnonzero(shapes.supply.capacities >= layers)
        rows = sorted((float(prices[g]), layers * shapes.slowness[g], int(g)) for g in fit)
        fastest = np.inf
        for price, stage_s, number in rows:
            if stage_s < fastest and stage_s <= longest:
                fastest = stage_s
                ways.append((number, layers, price, stage_s))
    return ways
