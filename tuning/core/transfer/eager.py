"""Eager Transfer (Hydro, section 5.4): train the best configuration at full width before the search ends."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Standing:
    """A trial's place in the search so far."""

    trial: int
    value: float | None
    epochs: int
    completed: bool


def best_first(standings: Sequence[Standing], mode: str) -> list[int]:
    """Order trials that have a metric: completed ones first, then by epochs reached, then by the metric.

    A metric after few epochs is not compared with one after many: a trial that was stopped early at a lucky
    value does not beat one that was trained to the end. Ties by trial number; no metric, no place.
    """
    valid = [s for s in standings if s.value is not None]
    sign = -1.0 if mode == "max" else 1.0
    order = sorted(valid, key=lambda s: (not s.completed, -s.epochs, sign * (s.value or 0.0), s.trial))
    return [standing.trial for standing in order]


def eager_target(
    order: Sequence[int], finished: int, total: int, fraction: float, started: Sequence[int]
) -> int | None:
    """Return the trial whose target should start on an idle device now, or None.

    `order` is best first, `started` are trials that already have a target. Before the search has ended only
    the leader is worth a target, and only from `fraction` finished trials on; a fraction of 1 turns it off.
    """
    if fraction >= 1 or not order or finished < fraction * total:
        return None
    return order[0] if order[0] not in started else None


def superseded(order: Sequence[int], running: Sequence[int], top_k: int) -> list[int]:
    """Return running targets that are no longer among the best `top_k`, the worst first.

    They are stopped where their device is needed, and run on beside the better one where it is not.
    """
    kept = set(order[:top_k])
    place = {trial: index for index, trial in enumerate(order)}
    return sorted((t for t in running if t not in kept), key=lambda t: -place.get(t, len(order)))
