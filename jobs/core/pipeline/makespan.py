"""The makespan of a non-interleaved 1F1B pipeline by recurrence, without building instruction lists.

Wave j of the recurrence runs F of micro-batch j at stage i and then B of micro-batch j - (S-1-i); that is
exactly the order of 1F1B, and what stage i needs from stage i+1 was finished one wave earlier. One wave
costs O(S), so a makespan costs O(S (m + S)). All times grow by one constant per wave once the pipeline is
in its rhythm; the rest of the micro-batches is then added in one step.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_STEADY_REL = 1e-13
RHYTHM_CHECK = 16  # waves between two looks at whether many pipelines are in their rhythm


def one_f_one_b_makespan(
    forward_s: Sequence[float], backward_s: Sequence[float], microbatches: int, transfer_s: float = 0.0
) -> float:
    """Seconds until the last backward of `microbatches` micro-batches leaves stage 0.

    `forward_s` and `backward_s` hold one time per stage, of the whole forward and the whole backward.
    Stage i warms up with min(S - i - 1, m) forwards.
    """
    stages = len(forward_s)
    free = [0.0] * stages
    backward_end = [0.0] * (stages + 1)
    wave = 0
    while wave < microbatches:
        before = free.copy() if wave > stages else None
        _forward_wave(wave, forward_s, backward_s, transfer_s, free, backward_end)
        wave += 1
        if before is not None and microbatches - wave > 1:
            rhythm = _rhythm(before, free)
            if rhythm is not None:
                shift = rhythm * (microbatches - wave)
                free = [time + shift for time in free]
                backward_end = [time + shift for time in backward_end]
                wave = microbatches
    # `wave` counts from zero, so the drain goes on with the next number.
    for late in range(stages - 1):
        for stage in range(max(0, stages - microbatches - late - 1), stages - 1 - late):
            start = max(free[stage], backward_end[stage + 1] + transfer_s)
            free[stage] = backward_end[stage] = start + backward_s[stage]
    return backward_end[0]


def _forward_wave(
    wave: int,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    transfer_s: float,
    free: list[float],
    backward_end: list[float],
) -> None:
    last = len(forward_s) - 1
    arrival = 0.0
    for stage in range(last + 1):
        ready = free[stage]
        end = (arrival if arrival > ready else ready) + forward_s[stage]
        arrival = end + transfer_s
        if wave >= last - stage:
            if stage < last:
                gradient = backward_end[stage + 1] + transfer_s
                if gradient > end:
                    end = gradient
            end += backward_s[stage]
            backward_end[stage] = end
        free[stage] = end


def _rhythm(before: list[float], after: list[float]) -> float | None:
    """The constant by which every stage advanced in one wave, or None if they differ."""
    step = after[0] - before[0]
    tolerance = _STEADY_REL * after[0]
    for old, new in zip(before, after, strict=True):
        if abs(new - old - step) > tolerance:
            return None
    return step


def one_f_one_b_makespans(
    forward_s: NDArray[np.float64],
    backward_s: NDArray[np.float64],
    microbatches: int,
    transfer_s: float = 0.0,
) -> NDArray[np.float64]:
    """Makespans of many pipelines of equal depth at once.

    `forward_s` and `backward_s` have shape (stages, pipelines); the answer has shape (pipelines,).
    """
    stages, width = forward_s.shape
    last = stages - 1
    free = np.zeros((stages, width))
    backward_end = np.zeros((stages, width))
    wave = 0
    while wave < microbatches + last:
        before = free.copy() if wave > stages and wave % RHYTHM_CHECK == 0 and wave < microbatches else None
        arrival = np.zeros(width)
        for stage in range(stages):
            end = free[stage]
            if wave < microbatches:
                np.maximum(end, arrival, out=end)
                end += forward_s[stage]
                arrival = end + transfer_s
            if 0 <= wave - (last - stage) < microbatches:
                if stage < last:
                    np.maximum(end, backward_end[stage + 1] + transfer_s, out=end)
                end += backward_s[stage]
                backward_end[stage] = end
        wave += 1
        if before is not None:
            step = free - before
            if (np.ptp(step, axis=0) <= _STEADY_REL * free[0]).all():
                free += step[0] * (microbatches - wave)
                backward_end += step[0] * (microbatches - wave)
                wave = microbatches
    return backward_end[0]
