"""The least price of the groups of one replica, by a relaxation: dynamic programming from the last stage.

For stage times t_i, the sum S of all of them, X_i of those after stage i, w_i their number, m micro-batches,
a backward pass of at least the part h of every layer and a transfer time c, a makespan of at most T needs
(with S' = S + 2 c (stages - 1) and Y_i = X_i + 2 c w_i)

* S' + ((m-1) h + max(0, m-1-w_i) (1-h)) t_i <= T: that much is left for stage i when the first micro-batch
  is on its way back;
* S' + Y_i + (m-1-w_i) t_i <= T where w_i < m-1: stage i starts its last forward only after the first
  micro-batch came back and the m-1-w_i forwards in between, and that one has to come back too.

S' is cut into cells. Within one, the smallest S' serves in both rules and the largest in S' <= its end, which
is priced by a multiplier; X_i is at least what the fastest type takes for as many layers. Both only relax.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobs.core.layout.supply import Supply

ROUNDING = 1 + 1e-12
SLACK = 1e-9  # of a layer
AT_ONCE = 256  # cells searched side by side

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Cells(NamedTuple):
    """Searches side by side: micro-batches, the ends of S', the price at which it stops, the multiplier."""

    microbatches: Floats
    start: Floats
    end: Floats
    cap: Floats
    multiplier: Floats

    def only(self, chosen: Ints | NDArray[np.bool_]) -> "Cells":
        """Some of them."""
        return Cells(*(column[chosen] for column in self))


class Stage(NamedTuple):
    """One way to form a stage: its layers, the price of the group, and the time of a micro-batch."""

    layers: int
    price: float
    time: float


class CheapestReplica:
    """Lower bounds on the price of a replica that runs m micro-batches within a time; equal layers only."""

    def __init__(self, supply: Supply, prices: Floats, time: float) -> None:
        work = supply.work
        self.time = time
        self.layers, self.transfer_s, self.part = work.layers, work.transfer_s, work.least_backward_part
        self.layer_s = work.total / work.layers
        self.fastest_s = self.layer_s / float(supply.rates.max())
        self.least_through = self.fastest_s * self.layers  # no S' is smaller
        self.ways = self._ways(supply, prices)

    def _ways(self, supply: Supply, prices: Floats) -> list[Stage]:
        """Stages worth forming: of two with as many layers one is cheaper, the other faster."""
        ways = []
        for layers in range(1, self.layers + 1):
            fit = np.flatnonzero(supply.capacities >= layers)
            rows = sorted((float(prices[g]), layers * self.layer_s / float(supply.rates[g])) for g in fit)
            fastest = np.inf
            for price, time in rows:
                if time < fastest and time <= self.time * ROUNDING:
                    fastest = time
                    ways.append(Stage(layers, price, time))
        return ways

    def _longest(self, cells: Cells, after: int) -> Floats:
        """How long a stage with so many after it may take, by the first rule."""
        again = cells.microbatches - 1
        left = again * self.part + np.maximum(again - after, 0) * (1 - self.part)
        spare = self._spare(cells)
        return np.divide(spare, left, out=np.full_like(spare, np.inf), where=left > 0) * ROUNDING

    def _spare(self, cells: Cells) -> Floats:
        return np.asarray(self.time * ROUNDING - cells.start)

    def prices(self, cells: Cells) -> Floats:
        """For every cell a lower bound on the price, at most its cap; neighbours should be alike."""
        parts = []
        for begin in range(0, len(cells.cap), AT_ONCE):
            some = cells.only(np.arange(begin, min(begin + AT_ONCE, len(cells.cap))))
            parts.append(self._search(some, self._useful(some)))
        return np.concatenate(parts) if parts else cells.cap.copy()

    def _weighed(self, cells: Cells, ways: Sequence[Stage]) -> Floats:
        """What a stage adds to the bound, with its time at the multiplier; shape (cells, ways)."""
        price = np.array([way.price for way in ways])
        time = np.array([way.time for way in ways]) + 2 * self.transfer_s
        return np.asarray(price + cells.multiplier[:, None] * time)

    def _useful(self, cells: Cells) -> list[Stage]:
        """Ways that may be part of a replica cheaper than its cap, with the others at the least price."""
        longest = self._longest(cells, self.layers)
        ways = [way for way in self.ways if way.time <= float(longest.max())]
        if not ways:
            return []
        weighed = self._weighed(cells, ways)
        layers = np.array([way.layers for way in ways])
        least = (weighed / layers).min(axis=1)
        room = _budget(cells, self.transfer_s) - least * self.layers
        kept = (weighed - least[:, None] * layers <= room[:, None]).any(axis=0)
        return [way for way, keep in zip(ways, kept, strict=True) if keep]

    def _search(self, cells: Cells, ways: Sequence[Stage]) -> Floats:
        """Stage by stage from the last; a cell is left when nothing in it can be cheaper than its cap."""
        if not ways:
            return cells.cap.copy()
        layers = self.layers
        weighed = self._weighed(cells, ways)
        least = (weighed / np.array([way.layers for way in ways])).min(axis=1)
        least_left = least[:, None] * np.arange(layers, -1, -1)
        budget = _budget(cells, self.transfer_s)
        found = np.full(len(budget), np.inf)
        alive = np.arange(len(budget))
        best = np.full((len(budget), layers + 1), np.inf)
        best[:, 0] = 0.0
        for after in range(layers):
            longer = self._longer(cells.only(alive), best, weighed[alive], ways, after)
            found[alive] = np.minimum(found[alive], longer[:, layers])
            bar = np.minimum(budget, found)[alive]
            longer[longer + least_left[alive] >= bar[:, None]] = np.inf
            longer[:, layers] = np.inf
            going = np.isfinite(longer).any(axis=1)
            if not going.any():
                break
            alive, best = alive[going], longer[going]
        extra = cells.multiplier * (cells.end + 2 * self.transfer_s)
        return np.asarray(np.minimum(np.minimum(found, budget) - extra, cells.cap))

    def _longer(
        self, cells: Cells, best: Floats, weighed: Floats, ways: Sequence[Stage], after: int
    ) -> Floats:
        """One more stage in front of `after` others: the least weight for every number of layers."""
        longest = self._longest(cells, after)
        theta = self._spare(cells)
        between = cells.microbatches - 1 - after
        reached = np.flatnonzero(np.isfinite(best).any(axis=0))
        low, high = int(reached[0]), int(reached[-1])
        longer = np.full_like(best, np.inf)
        behind = np.arange(self.layers + 1)
        for index, way in enumerate(ways):
            spare = theta - between * way.time - 2 * self.transfer_s * after
            most = np.where(between >= 1, spare / self.fastest_s + SLACK, np.inf)
            most[way.time > longest] = -1
            top = int(min(self.layers - way.layers, high, float(most.max())))
            if top < low:
                continue
            trial = best[:, low : top + 1] + weighed[:, index : index + 1]
            if most.min() < top:
                trial = np.where(behind[None, low : top + 1] <= most[:, None], trial, np.inf)
            place = longer[:, low + way.layers : top + way.layers + 1]
            np.minimum(place, trial, out=place)
        return longer


def _budget(cells: Cells, transfer_s: float) -> Floats:
    """The weight of a replica as dear as its cap."""
    return np.asarray(cells.cap + cells.multiplier * (cells.end + 2 * transfer_s))
