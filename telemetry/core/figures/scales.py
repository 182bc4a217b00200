"""Axes that stay readable: thinning many points, and ranges that one diverged value cannot squash."""

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np


class Scale(NamedTuple):
    """A Plotly axis and how many values lie outside it."""

    axis: dict[str, Any]
    outside: int


def thin(count: int, limit: int, keep: Collection[int] = ()) -> list[int]:
    """Return at most `limit` indices of `range(count)` in order, evenly spread, `keep` among them."""
    if count <= limit:
        return list(range(count))
    room = max(limit - len(keep), 0)
    even = (int(i * (count - 1) / max(room - 1, 1)) for i in range(room))
    return sorted({*even, *keep})


def value_scale(values: Sequence[float], *, mode: str, title: str) -> Scale:
    """Return an axis for metric values: logarithmic where they span much, cut where the worst ones diverge.

    Values must be finite. The best value is always inside; at most a twentieth, the worst, may be outside.
    """
    axis: dict[str, Any] = {"title": {"text": title}}
    if not values:
        return Scale(axis, 0)
    numbers = np.asarray(values, dtype=float)
    if mode == "min" and numbers.min() > 0 and np.quantile(numbers, 0.95) > 30 * numbers.min():
        low, high = math.log10(numbers.min()), math.log10(np.quantile(numbers, 0.95))
        margin = 0.06 * max(high - low, 0.1)
        axis |= {"type": "log", "range": [low - margin, high + margin]}
        return Scale(axis, int((numbers > 10 ** (high + margin)).sum()))
    near, far = (
        (numbers.max(), np.quantile(numbers, 0.05))
        if mode == "max"
        else (numbers.min(), np.quantile(numbers, 0.95))
    )
    worst = numbers.min() if mode == "max" else numbers.max()
    if abs(worst - near) <= 3 * abs(far - near):
        far = worst
    low, high = min(near, far), max(near, far)
    margin = 0.06 * ((high - low) or abs(high) or 1.0)
    axis |= {"range": [low - margin, high + margin]}
    return Scale(axis, int(((numbers < low - margin) | (numbers > high + margin)).sum()))
