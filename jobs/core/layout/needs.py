"""Whether every replica costs as much as a line says: so much, and more for each micro-batch it runs."""

import numpy as np
from numpy.typing import NDArray

from jobs.core.layout.cheapest import Cells, CheapestReplica

THIN = 0.006  # relative width of the cells that are not cut further
PARTS = 3
MOST_CELLS = 1_500  # looked at side by side; with more left the answer is not worth the time
APART = 0.06  # relative width of the first blocks of micro-batches
MULTIPLIERS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.7, 2.2, 3.0)  # in devices for the time they are busy
BESIDE = (1.0, 0.65, 1.5)  # the multiplier that suits the mean replica, and some beside it

Floats = NDArray[np.float64]


class Needs:
    """Lower bounds on what a replica costs, by cells of its micro-batches and its time through all stages."""

    def __init__(self, cheapest: CheapestReplica, microbatches: int, share: float, mean: float) -> None:
        """`share` are the micro-batches of the mean replica and `mean` is what there is for it."""
        self.cheapest = cheapest
        self.microbatches = microbatches
        self.share = share
        self.mean = mean
        self.edges = _edges(cheapest.least_through, cheapest.time)
        self._weigh()

    def _weigh(self) -> None:
        """Find the best multiplier at every edge for the mean replica."""
        starts, ends = self.edges[:-1], self.edges[1:]
        weights = np.array(MULTIPLIERS) * self.mean / max(self.cheapest.time - self.edges[0], 1e-9)
        tried, count = len(weights), len(starts) * len(weights)
        cells = Cells(
            np.full(count, max(1.0, np.floor(self.share))),
            np.repeat(starts, tried),
            np.repeat(ends, tried),
            np.full(count, 1.3 * self.mean),
            np.tile(weights, len(starts)),
        )
        found = self.cheapest.prices(cells).reshape(len(starts), tried)
        self.weights = weights[found.argmax(axis=1)]

    def cheaper(
        self, base: float, slope: float, among: tuple[Floats, Floats] | None = None
    ) -> tuple[int, float] | None:
        """A number of micro-batches whose replica may cost less than the line, and how little; or None.

        Looks at all numbers, or only at some `among` them, given as the ends of ranges.
        """
        low, high = among or _blocks(self.microbatches)
        needed = base + slope * high > 0
        low, high = low[needed], high[needed]
        cells = len(self.edges) - 1
        low, high = np.repeat(low, cells), np.repeat(high, cells)
        count = len(low) // max(cells, 1)
        start, end = np.tile(self.edges[:-1], count), np.tile(self.edges[1:], count)
        while len(low):
            cap = base + slope * high
            found = self._prices(low, start, end, cap)
            left = np.flatnonzero(found < cap * (1 - 1e-12))
            low, high, start, end, found = low[left], high[left], start[left], end[left], found[left]
            thin = (low == high) & (end - start <= THIN * start)
            if thin.any() or len(low) > MOST_CELLS:
                worst = int(np.argmin(np.where(thin | (not thin.any()), found - base - slope * high, np.inf)))
                return int(low[worst]), float(found[worst])
            low, high, start, end = _cut(low, high, start, end)
        return None

    def _prices(self, m: Floats, start: Floats, end: Floats, cap: Floats) -> Floats:
        value = np.zeros(len(m))
        left = np.arange(len(m))
        # A dearer replica loses more while it is filled.
        weights = np.interp(start, self.edges[:-1], self.weights) * cap / self.mean
        for beside in BESIDE:
            cells = Cells(m[left], start[left], end[left], cap[left], weights[left] * beside)
            value[left] = np.maximum(value[left], self.cheapest.prices(cells))
            left = left[value[left] < cap[left] * (1 - 1e-12)]
            if not len(left):
                break
        return value


def _edges(first: float, last: float) -> Floats:
    """Cells from the least time through all stages to the longest, fine where short ones lie."""
    factors = [1.04**i for i in range(14)] + [1.04**13 * 1.25**i for i in range(1, 12)]
    inside = [first * factor for factor in factors if first * factor < last * (1 - 1e-6)]
    return np.array([*inside, last]) if inside else np.array([first, first])


def _blocks(microbatches: int) -> tuple[Floats, Floats]:
    """All numbers of micro-batches, a few at a time."""
    lows, low = [], 1
    while low <= microbatches:
        lows.append(low)
        low = max(low, int(low * (1 + APART))) + 1
    return np.array(lows, dtype=float), np.array([*(low - 1 for low in lows[1:]), microbatches], dtype=float)


def _cut(low: Floats, high: Floats, start: Floats, end: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Cut every cell along the side that is longer, by what it matters."""
    few = (high > low) & ((high - low) / low >= 0.25 * (end - start) / start)
    middle = np.floor((low + high) / 2)[few]
    rest = ~few
    step = (end - start)[rest] / PARTS
    parts = [(start[rest] + i * step, start[rest] + (i + 1) * step) for i in range(PARTS)]
    return (
        np.concatenate([low[few], middle + 1, *([low[rest]] * PARTS)]),
        np.concatenate([middle, high[few], *([high[rest]] * PARTS)]),
        np.concatenate([start[few], start[few], *(a for a, _ in parts)]),
        np.concatenate([end[few], end[few], *(b for _, b in parts)]),
    )
