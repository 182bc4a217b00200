"""How well surrogates rank configurations: Spearman's rho, overlap of the best, regret."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuning.core.halving import ranked


@dataclass(frozen=True)
class Fidelity:
    """Agreement of a surrogate ranking with the one at full width, over the same configurations."""

    configurations: int
    spearman: float | None
    top_k: int
    overlap: float
    regret_top_1: float | None
    regret_top_k: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return asdict(self)


def _average_ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for position in range(at, end + 1):
            ranks[order[position]] = (at + end) / 2
        at = end + 1
    return ranks


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation with average ranks for ties; None where it is undefined."""
    if len(left) < 2:
        return None
    a, b = _average_ranks(left), _average_ranks(right)
    mean = (len(a) - 1) / 2
    cov = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    norm = math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    return cov / norm if norm else None


def fidelity(
    surrogate: Mapping[int, float | None], full: Mapping[int, float | None], mode: str, top_k: int = 3
) -> Fidelity:
    """Compare two rankings of the same trials; a missing or non-finite metric ranks last.

    Regret is how much worse the full-width metric of the surrogate's best (or the best of its top k) is than
    the best full-width metric there is; 0 is perfect.
    """
    trials = sorted(surrogate.keys() & full.keys())
    orders = [ranked({t: results[t] for t in trials}, mode) for results in (surrogate, full)]
    finite = [t for t in trials if _finite(surrogate[t]) and _finite(full[t])]
    rho = spearman([float(surrogate[t] or 0) for t in finite], [float(full[t] or 0) for t in finite])
    k = min(top_k, len(trials))
    overlap = len(set(orders[0][:k]) & set(orders[1][:k])) / k if k else 0.0
    regrets = [_regret(orders[0][:n], full, orders[1], mode) for n in (1, k)]
    return Fidelity(len(trials), rho, k, overlap, regrets[0], regrets[1])


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _regret(
    chosen: Sequence[int], full: Mapping[int, float | None], order: Sequence[int], mode: str
) -> float | None:
    values = [full[t] for t in chosen if _finite(full[t])]
    best = full[order[0]] if order else None
    if not values or best is None or not math.isfinite(best):
        return None
    found = (max if mode == "max" else min)(v for v in values if v is not None)
    return abs(best - found)
