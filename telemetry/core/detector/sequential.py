"""A sequential test for many series at once: is this one slower by more than a factor, for good?

A one-sided CUSUM on log slowdowns (Page 1954), which for normal noise is Wald's sequential probability ratio
test between the largest slowdown to ignore and the smallest to report. Its threshold follows the noise that
the series show, so that a quiet fleet is judged in three steps and a noisy one when there is enough to go by.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

IGNORED, REPORTED = math.log(1.10), math.log(1.20)
LIMIT = (IGNORED + REPORTED) / 2
# Odds of 100,000 to 1 at the alarm.
LOG_ODDS = math.log(1e5)
# One sample, however extreme, is an event and not a state.
LARGEST_STEP = 0.35
SMALLEST_EVIDENCE = 0.08
# A slowdown holds where the median of the last five steps does, which is three of five.
WINDOW = 5
# Steps before anything is called slow: what is just starting is not usual.
SETTLE = 5
SMALLEST_NOISE, LARGEST_DIFFERENCE = 0.01, 0.5
NOISE_MEMORY, LONE_MEMORY, NOISE_WINDOW = 0.08, 0.02, 16
NOISIER = 1.5
CLEAR_BELOW = math.log(1 / 0.92)
CLEAR_STEPS = 6
# How many steps the reported slowdown averages over.
LEVEL_STEPS = 50
# From the median and the mean difference of two normal samples to their standard deviation.
FROM_MEDIAN, FROM_MEAN = 1.0484, 0.8862


@dataclass
class Change:
    """What one update brought: indices of series that became slow and of series that recovered."""

    raised: list[int]
    cleared: list[int]


class SequentialTest:
    """State of the test for a growing number of series; memory does not grow with time."""

    def __init__(self) -> None:
        self.evidence = np.zeros(0)
        self.since = np.zeros(0, dtype=np.int64)
        self.recent = np.zeros((0, WINDOW))
        self.calm = np.zeros(0, dtype=np.int64)
        self.level = np.zeros(0)
        self.active = np.zeros(0, dtype=np.int64)
        self.count = np.zeros(0, dtype=np.int64)
        self.previous = np.zeros(0)
        self.differences = np.zeros((0, NOISE_WINDOW))
        self.slow = np.zeros(0, dtype=bool)
        self.noise = SMALLEST_NOISE
        self.seen = 0

    def grow(self, series: int) -> None:
        """Make room for more series."""
        more = series - len(self.evidence)
        if more <= 0:
            return
        for name in ("evidence", "level"):
            setattr(self, name, np.append(getattr(self, name), np.zeros(more)))
        for name in ("since", "calm", "active", "count"):
            setattr(self, name, np.append(getattr(self, name), np.zeros(more, dtype=np.int64)))
        self.previous = np.append(self.previous, np.full(more, np.nan))
        self.slow = np.append(self.slow, np.zeros(more, dtype=bool))
        self.recent = np.vstack([self.recent, np.full((more, WINDOW), -np.inf)])
        self.differences = np.vstack([self.differences, np.zeros((more, NOISE_WINDOW))])

    @property
    def threshold(self) -> Array:
        """How much evidence an alarm takes, in log slowdown, for each series.

        It follows the fleet's noise; a series that is clearly noisier is held to its own, which is a median
        over steps, so that a series that merely shifted once does not hide its shift.
        """
        own = FROM_MEDIAN * np.median(self.differences, axis=1)
        noise = np.where(own > NOISIER * self.noise, own, self.noise)
        return np.maximum(LOG_ODDS * noise**2 / (REPORTED - IGNORED), SMALLEST_EVIDENCE)

    def update(self, slowdown: Array, step: int) -> Change:
        """Take one step's log slowdowns, NaN for series that are absent."""
        present = np.isfinite(slowdown)
        value = np.where(present, slowdown, 0.0)
        self._learn_noise(value, present)
        self.count[present] += 1
        gain = np.minimum(value - LIMIT, LARGEST_STEP)
        rising = present & (self.evidence <= 0) & (gain > 0) & ~self.slow
        self.since[rising] = step
        self.active[rising] = 0
        total = np.maximum(0.0, self.evidence + gain)
        # Until a series has settled, its excursion is remembered but weighs nothing.
        total = np.where(self.count <= SETTLE, np.where(gain > 0, 1e-9, 0.0), total)
        self.evidence = np.where(present, total, self.evidence)
        self.recent[present, 1:] = self.recent[present, :-1]
        self.recent[present, 0] = value[present]
        middle = np.sort(self.recent, axis=1)[:, WINDOW // 2]
        self._follow_level(value, middle, present)
        threshold = self.threshold
        return Change(self._raise(middle, present, threshold), self._clear(middle, present, threshold))

    def _follow_level(self, value: Array, middle: Array, present: Mask) -> None:
        """Keep the mean of the present excursion, which is the slowdown to report."""
        active = present & ((self.evidence > 0) | (self.slow & (middle >= CLEAR_BELOW)))
        self.active[active] += 1
        weight = 1.0 / np.clip(self.active, 1, LEVEL_STEPS)
        # The median of five once there are five: a stall, or the way back to normal, is no part of the level.
        steady = np.where(self.active >= WINDOW, middle, value)
        settled = active & ((self.active < WINDOW) | (middle >= CLEAR_BELOW))
        self.level = np.where(settled, self.level + weight * (steady - self.level), self.level)

    def _raise(self, middle: Array, present: Mask, threshold: Array) -> list[int]:
        ready = present & ~self.slow & (self.count > SETTLE)
        raised = ready & (middle > LIMIT) & (self.evidence > threshold)
        self.slow |= raised
        self.calm[raised] = 0
        return [int(index) for index in np.flatnonzero(raised)]

    def _clear(self, middle: Array, present: Mask, threshold: Array) -> list[int]:
        slow = present & self.slow
        self.evidence = np.where(slow, np.minimum(self.evidence, 2 * threshold), self.evidence)
        self.calm[slow & (middle < CLEAR_BELOW)] += 1
        self.calm[slow & (middle > LIMIT)] = 0
        cleared = slow & (self.calm >= CLEAR_STEPS)
        self.slow &= ~cleared
        self.evidence[cleared] = 0.0
        return [int(index) for index in np.flatnonzero(cleared)]

    def _learn_noise(self, value: Array, present: Mask) -> None:
        """Follow the noise by differences between steps, which a lasting shift does not disturb."""
        both = present & ~np.isnan(self.previous)
        if both.any():
            apart = np.minimum(np.abs(value[both] - self.previous[both]), LARGEST_DIFFERENCE)
            fresh = self.count[both] <= 1
            self.differences[both, 1:] = self.differences[both, :-1]
            self.differences[both, 0] = apart
            # The first difference stands for all until there are more.
            self.differences[np.flatnonzero(both)[fresh]] = apart[fresh, None]
            # Two series have no median; their mean is followed slowly, so that a shift hardly moves it.
            many = len(apart) > 2
            typical = FROM_MEDIAN * np.median(apart) if many else FROM_MEAN * np.mean(apart)
            memory = max(NOISE_MEMORY if many else LONE_MEMORY, 1.0 / (self.seen + 1))
            squared = (1 - memory) * self.noise**2 + memory * float(typical) ** 2
            self.noise = max(math.sqrt(squared), SMALLEST_NOISE)
            self.seen += 1
        self.previous = np.where(present, value, self.previous)
