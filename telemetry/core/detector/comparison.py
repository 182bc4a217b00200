"""One step against peers and against what is usual, in arrays over cells."""

import math
from collections.abc import Iterable

import numpy as np

from telemetry.core.detector.fleet import Array, Indices, others_median
from telemetry.core.detector.sequential import LIMIT, Mask

# Fewer same-stage cells than this are no peers: a median needs a majority.
PEERS = 3
# Two stages have no majority either: only a gross difference between them is imbalance.
TWO_STAGES = math.log(1.25)


def against_peers(value: Array, stage: Indices) -> Array:
    """Return each cell's log value over the median of the other cells of its stage.

    NaN where the stage has fewer than three present cells. It also finds a cell that is slow from its first
    step, where no change point exists.
    """
    result = np.full(len(value), np.nan)
    present = np.isfinite(value)
    for number in np.unique(stage[present]):
        rows = np.flatnonzero(present & (stage == number))
        if len(rows) >= PEERS:
            result[rows] = value[rows] - others_median(value[rows])
    return result


def against_usual(change: Array) -> Array:
    """Return each cell's log change beyond the common change of the other cells.

    A common improvement does not count, or the one cell that stayed as it was would look slow. NaN where
    there is no other cell.
    """
    result = np.full(len(change), np.nan)
    rows = np.flatnonzero(np.isfinite(change))
    result[rows] = change[rows] - np.maximum(others_median(change[rows]), 0.0)
    return result


def lower_median(values: Array) -> float:
    """Return the median, of an even number the lower one: more than half must have changed to move it."""
    found = np.sort(values[np.isfinite(values)])
    return float(found[(len(found) - 1) // 2]) if len(found) else math.nan


def stage_times(value: Array, usual: Array, slow: Mask, stage: Indices, stages: Iterable[int]) -> Array:
    """Return each stage's typical log time, NaN where unknown.

    The median of its present cells where there are three; otherwise the least usual time of its cells, so
    that one slow cell does not make a stage look slow.
    """
    result = []
    for number in stages:
        mine = (stage == number) & ~slow
        present = mine & np.isfinite(value)
        known = mine & np.isfinite(usual)
        if present.sum() >= PEERS:
            result.append(float(np.median(value[present])))
        else:
            result.append(float(usual[known].min()) if known.any() else math.nan)
    return np.array(result)


def against_stages(times: Array) -> Array:
    """Return each stage's log time over the others' median, so that LIMIT is what must be exceeded."""
    result = np.full(len(times), np.nan)
    rows = np.flatnonzero(np.isfinite(times))
    if len(rows) >= PEERS:
        result[rows] = times[rows] - others_median(times[rows])
    elif len(rows) == 2:
        mean = math.log(np.exp(times[rows]).mean())
        result[rows] = times[rows] - mean + LIMIT - TWO_STAGES
    return result
