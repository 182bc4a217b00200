"""A tight lower bound on the iteration time of any layout: what its replicas need against what nodes offer.

Give every type of group a price of at least 0. If a layout took at most T, its replicas together would cost
no more than all nodes can offer at these prices (`supply`). But a replica of m micro-batches costs at least
N(m) (`cheapest`), and if N(m) >= base + slope m for all m (`needs`), then D replicas that run M micro-batches
cost at least D base + slope M. Where that exceeds the supply, T is impossible; with base = 0 for every D,
which serves where the number of replicas is open. Any prices and any line prove something; the prices here
are those of the devices that a healthy group of the same speed has, the smallest ones a little less. Layers,
micro-batches, the sizes of groups and who is the slowest in each stay whole.
"""

from collections.abc import Callable

import numpy as np

from jobs.core.layout.cheapest import CheapestReplica
from jobs.core.layout.grouping import TooLarge
from jobs.core.layout.needs import Needs
from jobs.core.layout.supply import Floats, Supply
from jobs.core.layout.work import Work

MOST_LAYERS = 256
SURE = 1e-7  # by how much, relatively, the need must exceed the supply
PRECISION = 1e-3
BENDS = (0.0, 0.18)  # how much less a group slower than that of half a node is worth
# the first line, against one through nothing: a replica costs a little before it runs anything
STEEPER = 1.035
MOST_LINES = 4
STEP_DOWN = 3e-3  # from the guess to what can be proven
MOST_STEPS = 3
WORTHWHILE = 7e-3  # by how much other prices must promise more
FEW = (0.88, 1.0, 1.12)  # shares of the mean replica by which times are guessed
FEW_OPEN = (0.4, 0.55, 0.75, *FEW, 1.4, 2.0, 3.0)  # the same where the number of replicas is open


class PricedBound:
    """The bound of one instance of equal layers.

    `replicas` are those of a known layout; where the instance leaves their number open, the bound holds for
    any, and is tightest near that one. Raises TooLarge where it cannot be found this way.
    """

    def __init__(self, work: Work, replicas: int, keep_going: Callable[[], bool] = lambda: True) -> None:
        if not work.uniform or work.total == 0 or work.layers > MOST_LAYERS:
            raise TooLarge
        self.work = work
        self.open = work.instance.replicas is None
        self.replicas = work.instance.replicas or replicas
        self.keep_going = keep_going
        self.supply = Supply(work)
        if not self.supply.types:
            raise TooLarge
        self.share = work.microbatches / self.replicas

    def lower_bound(self, low: float, high: float) -> float:
        """The best bound found between a known one and the time of a known layout."""
        for bend in BENDS:
            prices = self.supply.natural(bend)
            guess = self._guess(low * (1 + WORTHWHILE) if bend else low, high, prices)
            for step in range(1, MOST_STEPS + 1):
                time = guess * (1 - step * STEP_DOWN)
                if time <= low or not self.keep_going():
                    break
                if self.excluded(time, prices):
                    low = time
                    break
        return low

    def _guess(self, low: float, high: float, prices: Floats) -> float:
        """The largest time that seems impossible; 0 where not even the smallest does."""
        if not self._likely(low, prices):
            return 0.0
        while high - low > PRECISION * high and self.keep_going():
            middle = (low + high) / 2
            low, high = (middle, high) if self._likely(middle, prices) else (low, middle)
        return low

    def _needs(self, time: float, prices: Floats) -> tuple[Needs | None, float]:
        """What replicas need, None if no time is left for it, and what there is for the mean one."""
        mean = self.supply.worth(prices) * (1 + SURE) / self.replicas
        cheapest = CheapestReplica(self.supply, prices, time)
        if cheapest.least_through >= time * (1 - SURE):
            return None, mean
        return Needs(cheapest, self.work.microbatches, self.share, mean), mean

    def _likely(self, time: float, prices: Floats) -> bool:
        """Whether the time is impossible as far as a few numbers of micro-batches tell."""
        needs, mean = self._needs(time, prices)
        if needs is None:
            return True
        shares = FEW_OPEN if self.open else FEW
        few = np.unique(np.clip(np.round(np.array(shares) * self.share), 1, self.work.microbatches))
        slope = self._first_slope(mean)
        return needs.cheaper(mean - slope * self.share, slope, (few, few)) is None

    def _first_slope(self, mean: float) -> float:
        return mean / self.share * (1 if self.open else STEEPER)

    def excluded(self, time: float, prices: Floats) -> bool:
        """Whether these prices prove that every layout takes longer than this."""
        needs, mean = self._needs(time, prices)
        if mean <= 0:
            return False
        if needs is None:
            return self.work.total / float(self.supply.rates.max()) > time * (1 + SURE)
        slope, least, most = self._first_slope(mean), 0.0, np.inf
        for _ in range(MOST_LINES):
            # Every line through what there is for the mean replica would do.
            found = needs.cheaper(mean - slope * self.share, slope)
            if found is None:
                return True
            count, cost = found
            if self.open or abs(count - self.share) < 0.5 or not self.keep_going():
                return False
            needed = (cost - mean) / (count - self.share)
            least, most = (max(least, needed), most) if count < self.share else (least, min(most, needed))
            if least >= most:
                return False
            beyond = needed * (1 + np.sign(needed - slope) * 1e-3)
            slope = (least + most) / 2 if least > 0 and most < np.inf else beyond
        return False
