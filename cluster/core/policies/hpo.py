"""Demand of hyperparameter studies: what to ask for, release, split and move (Hydro Coordinator, OSDI
2023, section 5).

A bundle is a device with its CPUs. All times are monotonic seconds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

IDLE_RELEASE_S = 60.0
LOW_ACTIVITY = 0.5


def bundles_wanted(trials_alive: int, largest_fusion: int, cap: int) -> int:
    """Return how many bundles a study can use in its present rung: alive / F, at most its cap."""
    if trials_alive <= 0 or cap <= 0:
        return 0
    return min(math.ceil(trials_alive / max(largest_fusion, 1)), cap)


def bundles_to_release(
    idle_since_s: Mapping[str, float], now_s: float, *, wanted: int, held: int, pending_on: Sequence[str] = ()
) -> list[str]:
    """Return which idle bundles go back, longest idle first; never below what the study wants.

    A bundle on which a gang is pending stays, whatever its idle time.
    """
    ripe = [
        name
        for name, since in idle_since_s.items()
        if now_s - since > IDLE_RELEASE_S and name not in pending_on
    ]
    spare = max(0, held - wanted)
    return sorted(ripe, key=lambda name: (idle_since_s[name], name))[:spare]


def nodes_to_give_up(bundles_by_node: Mapping[str, int], wanted: int) -> dict[str, int]:
    """Return how many bundles a shrinking study keeps on each node: whole nodes go first, smallest first."""
    keep = dict(bundles_by_node)
    excess = sum(keep.values()) - wanted
    for node in sorted(keep, key=lambda name: (keep[name], name)):
        if excess <= 0:
            break
        if keep[node] <= excess:
            excess -= keep.pop(node)
    for node in sorted(keep, key=lambda name: (keep[name], name)):
        given = min(excess, keep[node] - 1)
        if excess > 0 and given > 0:
            keep[node] -= given
            excess -= given
    return keep


def split_fused(trials: int, bundles: int) -> list[int]:
    """Return equal parts of a fused trial over bundles, each of at least one trial, larger ones first.

    Splitting comes before data parallelism because the parts need not talk to each other.
    """
    parts = max(1, min(trials, bundles))
    size, odd = divmod(trials, parts)
    return [size + 1] * odd + [size] * (parts - odd) if trials > 0 else []


@dataclass(frozen=True, slots=True)
class GrowthPlan:
    """Fused sizes per container, and data-parallel workers of the best trial that cannot be split."""

    fused: tuple[int, ...]
    workers: int


def grow(fused: Sequence[int], extra_bundles: int, *, has_target: bool) -> GrowthPlan:
    """Return how a study uses further bundles: split the largest fused trial, then widen the target."""
    sizes = sorted(fused, reverse=True)
    left = extra_bundles
    while left and sizes and sizes[0] > 1:
        largest = sizes.pop(0)
        sizes += split_fused(largest, 2)
        sizes.sort(reverse=True)
        left -= 1
    return GrowthPlan(tuple(sizes), 1 + left if has_target else 0)


@dataclass(frozen=True, slots=True)
class KindOffer:
    """A device kind with free devices.

    Attributes:
        age: 0 for the newest generation, growing.
        slowdown: run time here over run time on the newest kind.
    """

    kind: str
    age: int
    memory_bytes: int
    slowdown: float


def kind_for_trial(
    offers: Sequence[KindOffer],
    *,
    is_target: bool,
    activity: float,
    memory_bytes: int,
    job_remaining_s: float,
    trial_remaining_s: float,
    most_growth: float = 0.05,
) -> str | None:
    """Return the kind a trial should use, or None where nothing offered has the memory.

    A target that leaves a device half idle goes to the oldest kind with enough memory, unless the study would
    end later by more than `most_growth`; everything else goes to the newest.
    """
    fitting = sorted(
        (offer for offer in offers if offer.memory_bytes >= memory_bytes), key=lambda offer: offer.age
    )
    if not fitting:
        return None
    if not is_target or activity >= LOW_ACTIVITY:
        return fitting[0].kind
    for offer in reversed(fitting):
        later = max(job_remaining_s, trial_remaining_s * offer.slowdown)
        if later <= job_remaining_s * (1 + most_growth):
            return offer.kind
    return fitting[0].kind
