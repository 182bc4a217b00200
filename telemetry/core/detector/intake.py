"""What may be judged: finite durations in seconds; what is left out is counted."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from telemetry.core.detector.samples import SECONDS_RANGE, StepBatch

# How seconds are confused with other units: milliseconds, microseconds.
UNIT_FACTORS = (math.log(1e3), math.log(1e6))
UNIT_TOLERANCE = math.log(4.0)


@dataclass
class Intake:
    """Filters steps and counts what was dropped, by reason."""

    non_finite: int = 0
    unit: int = 0
    used: int = 0
    unit_ranks: set[int] = field(default_factory=set)

    @property
    def coverage(self) -> float:
        """Share of the samples that were used; 1 where there were none."""
        total = self.non_finite + self.unit + self.used
        return self.used / total if total else 1.0

    def clean(self, batch: StepBatch) -> StepBatch:
        """Return the rows that can be judged."""
        with np.errstate(invalid="ignore"):
            fine = (batch.compute_s >= SECONDS_RANGE[0]) & (batch.compute_s <= SECONDS_RANGE[1])
            waits = ~(batch.wait_s >= batch.compute_s)
            wrong_wait = fine & (batch.wait_s > 50 * batch.compute_s)
        self.non_finite += int((~fine | (~waits & ~wrong_wait)).sum())
        rows = batch.select(fine & (waits | wrong_wait))
        with np.errstate(invalid="ignore"):
            off = unit_errors(rows) | (rows.wait_s > 50 * rows.compute_s)
        self.unit += int(off.sum())
        self.used += int((~off).sum())
        self.unit_ranks.update(rows.rank[off].tolist())
        return rows.select(~off)


def unit_errors(rows: StepBatch) -> NDArray[np.bool_]:
    """Return which rows are off by a thousand or a million against their own wall time or the other ranks."""
    none = np.zeros(len(rows), dtype=bool)
    if not len(rows):
        return none
    log = np.log(rows.compute_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        against_wall = np.nan_to_num(log - np.log(rows.wall_s), nan=0.0)
    off = _looks_off(against_wall)
    # Where every rank contradicts its wall time, it is the wall time that is off.
    if off.all():
        off = none
    sound = np.sort(log[~off])
    # The lower median: of two ranks, the one in a larger number of smaller units is the one that is off.
    return off | _looks_off(log - sound[(len(sound) - 1) // 2])


def _looks_off(log_ratio: NDArray[np.float64]) -> NDArray[np.bool_]:
    off = np.zeros(len(log_ratio), dtype=bool)
    for factor in UNIT_FACTORS:
        off |= np.abs(np.abs(log_ratio) - factor) < UNIT_TOLERANCE
    return off
