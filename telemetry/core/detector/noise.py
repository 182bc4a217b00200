"""Whether times vary from step to step, and whether the workload explains it."""

import math

import numpy as np

from telemetry.core.detector.baseline import SETTLE
from telemetry.core.detector.fleet import Array

REMEMBERED = 64
LEAST_STEPS = 20
# Times that vary by less than this are no news; an explanation must take away half of the variation.
NOTEWORTHY, EXPLAINED = 0.05, 0.5
# One stall among many steps is no variation of the workload.
LARGEST = 0.4


class Variation:
    """The variation of a log time and of the same time after an explanation, by differences between steps.

    Differences, since a lasting change of level is not variation.
    """

    def __init__(self) -> None:
        self.raw = np.full(REMEMBERED, np.nan)
        self.explained = np.full(REMEMBERED, np.nan)
        self.count = 0
        self._ignored = SETTLE
        self._last: tuple[Array, Array] | None = None

    def add(self, raw: Array, explained: Array) -> None:
        """Take one step's log times, one for each series, NaN where absent."""
        if self._ignored:
            self._ignored -= 1
            return
        if self._last is not None:
            size = len(self._last[0])
            both = np.abs(raw[:size] - self._last[0]), np.abs(explained[:size] - self._last[1])
            fine = np.isfinite(both[0]) & np.isfinite(both[1])
            if fine.any():
                place = self.count % REMEMBERED
                # The root mean square over series; sequence lengths vary with heavy tails.
                self.raw[place], self.explained[place] = (
                    math.sqrt(float(np.mean(np.minimum(each[fine], LARGEST) ** 2))) for each in both
                )
                self.count += 1
        self._last = raw, explained

    @property
    def coefficients(self) -> tuple[float, float]:
        """Coefficients of variation, as observed and as left after the explanation."""
        filled = self.raw[: self.count], self.explained[: self.count]
        raw, explained = (math.sqrt(float(np.mean(_trimmed(each) ** 2)) / 2) for each in filled)
        return raw, explained

    @property
    def is_workload(self) -> bool:
        """Whether times vary and the explanation accounts for most of it."""
        if self.count < LEAST_STEPS:
            return False
        raw, explained = self.coefficients
        return raw >= NOTEWORTHY and explained <= EXPLAINED * raw


def _trimmed(values: Array) -> Array:
    """Without the largest tenth, which are stalls, shifts and periodic pauses."""
    return np.sort(values)[: max(1, int(0.9 * len(values)))]
