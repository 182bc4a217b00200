"""What is usual for each series: learned from its first steps after warming up, then left alone."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Steps after a start that are never usual: compilation, caches, memory pools.
SETTLE = 5
# A first opinion, a settled one, and where learning ends (a slow drift must not become usual).
PROVISIONAL, SETTLED, LEARNED = 8, 15, 100
LARGEST_CORRECTION = 0.1


class Baselines:
    """The usual log value of each series; memory does not grow with time."""

    def __init__(self) -> None:
        self.value = np.zeros(0)
        self.count = np.zeros(0, dtype=np.int64)
        self.first = np.zeros((0, SETTLED))

    def grow(self, series: int) -> None:
        """Make room for more series."""
        more = series - len(self.value)
        if more > 0:
            self.value = np.append(self.value, np.full(more, np.nan))
            self.count = np.append(self.count, np.zeros(more, dtype=np.int64))
            self.first = np.vstack([self.first, np.zeros((more, SETTLED))])

    def forget(self, series: Mask) -> None:
        """Learn these series anew, without another warm-up."""
        self.value[series] = np.nan
        self.count[series] = np.minimum(self.count[series], SETTLE)

    @property
    def settled(self) -> Mask:
        """Which series have their full first baseline."""
        return self.count >= SETTLE + SETTLED

    def change(self, value: Array) -> Array:
        """Return the values against what is usual; NaN where that is not known yet."""
        return value - self.value

    def learn(self, value: Array, calm: Mask) -> None:
        """Take one step's values (NaN where absent); only calm series are still refined."""
        present = np.isfinite(value)
        self.count[present] += 1
        seen = self.count - SETTLE
        filling = present & (seen >= 1) & (seen <= SETTLED)
        if filling.any():
            rows = np.flatnonzero(filling)
            self.first[rows, seen[rows] - 1] = value[rows]
            for filled in np.unique(seen[rows]):
                if filled >= PROVISIONAL:
                    same = rows[seen[rows] == filled]
                    self.value[same] = np.median(self.first[same, :filled], axis=1)
        refine = present & calm & (seen > SETTLED)
        # The others keep their place in the count, so that a series that recovers can still be refined.
        self.count[present & ~calm & (seen > SETTLED)] -= 1
        refine &= seen <= LEARNED
        step = np.clip(value[refine] - self.value[refine], -LARGEST_CORRECTION, LARGEST_CORRECTION)
        self.value[refine] += step / seen[refine]
        self.count[self.count > SETTLE + LEARNED] = SETTLE + LEARNED + 1
