"""One order for results: better first, ties by trial number, non-finite last."""

import math
from collections.abc import Mapping

Results = Mapping[int, float | None]


def rank_key(trial: int, value: float | None, mode: str) -> tuple[bool, float, int]:
    """Return a sort key; smaller is better in either mode."""
    if value is None or not math.isfinite(value):
        return (True, 0.0, trial)
    return (False, -value if mode == "max" else value, trial)


def ranked(results: Results, mode: str) -> list[int]:
    """Return the trials from best to worst."""
    return sorted(results, key=lambda trial: rank_key(trial, results[trial], mode))
