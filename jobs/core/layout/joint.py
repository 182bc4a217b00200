"""All replicas chosen together: whole replicas are proposed, priced by each other and packed into the nodes.

For a time T, a linear program says how many micro-batches replicas could run in it and what each group is
worth; at those prices better replicas are proposed. An integer program then looks for a plan that runs them
all, and T falls or rises by halving. A replica that costs more than the linear program has to spare is in no
such plan, so few are left for the integer one.
"""

from collections.abc import Callable, Iterator

import numpy as np

from jobs.core.layout.anytime import AnytimeSearch, Candidate
from jobs.core.layout.drafts import Group
from jobs.core.layout.grouping import TooLarge
from jobs.core.layout.packing import Packed, Packing, Prices
from jobs.core.layout.shapes import Shape, Shapes
from jobs.core.layout.supply import Supply

MOST_LAYERS = 256
MOST_TYPES = 120
APPROACH = 2  # steps by the linear program alone
STEPS = 9
LEAP = 0.02  # how much faster a next plan may be
CLOSE = 5e-4  # relative distance of two times at which the search ends
STEEP = 0.75  # how a time follows the micro-batches run in it, about
AHEAD = 0.003  # how much longer the integer program is expected to take than the linear one
SPARE = 1e-6
FIRST_SPARE = 0.06  # of the mean replica: how much dearer than natural the first proposals may be
BESIDE = 1.2  # micro-batches by which a proposal may be worse than those there are


class JointSearch:
    """Looks for layouts faster than a known one, which has so many replicas.

    Raises TooLarge where this way is not open.
    """

    def __init__(self, search: AnytimeSearch, replicas: int, seconds_left: Callable[[], float]) -> None:
        work = search.work
        if not work.uniform or work.total == 0 or work.layers > MOST_LAYERS:
            raise TooLarge
        self.search, self.work, self.seconds_left = search, work, seconds_left
        self.supply = Supply(work)
        if not 0 < len(self.supply.types) <= MOST_TYPES:
            raise TooLarge
        self.shapes = Shapes(self.supply, work.microbatches / replicas)
        self.packing = Packing(self.supply, work.instance.replicas)
        self.pool: dict[Shape, None] = {}
        natural = self.supply.natural()
        self.groups = natural * work.microbatches / self.supply.worth(natural)
        self.replica = 0.0

    def improve(self, known: float) -> Iterator[Candidate]:
        """Yield ever faster layouts, all faster than the known time."""
        low, high, time = 0.0, known, known
        for step in range(STEPS):
            prices = self._propose(time)
            if prices is None:
                return
            ahead = time * (self.work.microbatches / prices.value) ** STEEP
            if step < APPROACH:
                time = min(ahead * (1 + AHEAD), high * (1 - CLOSE))
                continue
            found = self._plan(time, prices)
            if found is not None and found.time < high:
                yield found
                high = found.time
            else:
                low = time
            # Micro-batches are whole: a plan may be faster than the linear program promised.
            floor = max(low, min(ahead, high * (1 - LEAP)))
            if high - floor <= CLOSE * high or self.seconds_left() <= 0:
                return
            time = (floor + high) / 2

    def _propose(self, time: float) -> Prices | None:
        """Add better replicas at the prices of those there are; the new prices, None if too few fit."""
        if self.pool:
            known = self._prices(time)
            if known is not None:
                # Prices of few replicas are extreme ones; halfway there they mislead less.
                self.groups = (self.groups + known.groups) / 2
                self.replica = (self.replica + known.replica) / 2
                self.shapes.share = self.work.microbatches / known.replicas
        spare = BESIDE if self.pool else FIRST_SPARE * self.shapes.share
        new = self.shapes.proposals(self.groups, time, self.replica, spare, self.pool)
        self.pool.update(dict.fromkeys(new))
        return self._prices(time)

    def _running(self, time: float) -> tuple[list[Shape], list[int]]:
        """The known replicas that run any micro-batch within a time, and how many."""
        rows = [(shape, self.shapes.most(shape, time)) for shape in self.pool]
        return [shape for shape, run in rows if run], [run for _, run in rows if run]

    def _prices(self, time: float) -> Prices | None:
        shapes, run = self._running(time)
        return self.packing.prices(shapes, run) if shapes else None

    def _plan(self, time: float, prices: Prices) -> Candidate | None:
        wanted = self.work.microbatches
        if prices.value < wanted * (1 - SPARE):
            return None
        shapes, run = self._running(time)
        spare = prices.value - wanted + SPARE * wanted
        dear = np.array([sum(float(prices.groups[number]) for number, _ in shape) for shape in shapes])
        kept = np.flatnonzero(dear + prices.replica - np.array(run) <= spare)
        some, their = [shapes[i] for i in kept], [run[i] for i in kept]
        packed = self.packing.choose(some, their, wanted, self.seconds_left()) if some else None
        return None if packed is None else self._finished(packed, some, their)

    def _finished(self, packed: Packed, shapes: list[Shape], run: list[int]) -> Candidate:
        """The plan over devices, layers moved where that helps and micro-batches dealt exactly."""
        splits, keep_going = self.search.splits, self.search.keep_going
        groups = {number: list(reversed(rows)) for number, rows in packed.groups.items()}
        built = []
        counts = _trimmed([run[column] for column in packed.chosen], self.work.microbatches)
        for column, count in zip(packed.chosen, counts, strict=True):
            if not count:
                continue
            pipe: list[Group] = [groups[number].pop() for number, _ in shapes[column]]
            kinds = tuple(group.kind for group in pipe)
            layers = tuple(layers for _, layers in shapes[column])
            built.append((pipe, kinds, splits.climb(kinds, layers, count, keep_going)))
        return self.search.level(built, [count for count in counts if count])


def _trimmed(counts: list[int], microbatches: int) -> list[int]:
    """The same counts with what is too much taken from the largest."""
    counts = list(counts)
    for _ in range(sum(counts) - microbatches):
        counts[counts.index(max(counts))] -= 1
    return counts
