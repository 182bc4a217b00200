"""How many devices a study holds: what it asks for, what it gives back, how it spreads over more.

All times are monotonic seconds.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cluster.core.policies.hpo import (
    IDLE_RELEASE_S,
    bundles_to_release,
    bundles_wanted,
    nodes_to_give_up,
    split_fused,
)


@dataclass(frozen=True, slots=True)
class StudyState:
    """What the Coordinator knows of a study.

    Attributes:
        containers: name of a fused container to its number of trials, each on one bundle.
        nodes: bundle to its node, of everything held.
        idle_since_s: bundle to the time since when it has had no work.
        pending_on: bundles a gang is waiting for.
        new_bundles: granted and not used yet.
        target: whether a trial runs that cannot be split.
        rung: number of the rung the trials alive are in.
    """

    trials_alive: int
    largest_fusion: int
    cap: int
    containers: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    idle_since_s: Mapping[str, float] = field(default_factory=dict)
    pending_on: tuple[str, ...] = ()
    new_bundles: int = 0
    target: bool = False
    rung: int = 0


@dataclass(frozen=True, slots=True)
class BundleDecision:
    """`kind` is ask, release, split, widen, or keep (not widened); `subject` a bundle, a run or a number."""

    kind: str
    subject: str
    reason: str
    sizes: tuple[int, ...] = ()


def decide_bundles(state: StudyState, now_s: float) -> list[BundleDecision]:
    """Return everything to do for a study now, in this order: ask, release, split, widen."""
    wanted = bundles_wanted(state.trials_alive, state.largest_fusion, state.cap)
    wanted = max(wanted, int(state.target))
    asked = BundleDecision(
        "ask",
        str(wanted),
        f"rung {state.rung}: {state.trials_alive} trials alive, up to {state.largest_fusion} in a container, "
        f"at most {state.cap} devices",
    )
    return [asked, *_releases(state, wanted, now_s), *_growth(state)]


def _releases(state: StudyState, wanted: int, now_s: float) -> list[BundleDecision]:
    ripe = bundles_to_release(
        state.idle_since_s, now_s, wanted=wanted, held=len(state.nodes), pending_on=state.pending_on
    )
    if not ripe:
        return []
    counts: dict[str, int] = {}
    for node in state.nodes.values():
        counts[node] = counts.get(node, 0) + 1
    keep = nodes_to_give_up(counts, len(state.nodes) - len(ripe))
    idle = [
        name
        for name, since_s in state.idle_since_s.items()
        if now_s - since_s > IDLE_RELEASE_S and name not in state.pending_on
    ]
    whole = [name for name in idle if state.nodes[name] not in keep]
    ordered = sorted(idle, key=lambda name: (name not in whole, state.idle_since_s[name], name))
    return [
        BundleDecision(
            "release",
            name,
            f"idle for {now_s - state.idle_since_s[name]:.0f} s, more than {IDLE_RELEASE_S:.0f} s"
            + (f"; node {state.nodes[name]} becomes free as a whole" if name in whole else ""),
        )
        for name in ordered[: len(ripe)]
    ]


def _growth(state: StudyState) -> list[BundleDecision]:
    parts = spread(state.containers, state.new_bundles)
    found = [
        BundleDecision(
            "split",
            name,
            f"{state.containers[name]} fused trials over {len(sizes)} devices need no communication",
            tuple(sizes),
        )
        for name, sizes in parts.items()
        if len(sizes) > 1
    ]
    left = state.new_bundles - sum(len(sizes) - 1 for sizes in parts.values())
    if left > 0 and state.target:
        reason = "nothing is left to split; the target trains data-parallel"
        found.append(BundleDecision("widen", str(1 + left), reason))
    return found


def spread(containers: Mapping[str, int], bundles: int) -> dict[str, list[int]]:
    """Return the sizes each container is cut into over further bundles, so that the largest part is smallest.

    F=16 on one device and three more: four parts of four.
    """
    counts = dict.fromkeys(containers, 1)
    heap = [(-_largest(size, 1), name) for name, size in containers.items()]
    heapq.heapify(heap)
    for _ in range(bundles):
        if not heap or heap[0][0] >= -1:
            break
        name = heapq.heappop(heap)[1]
        counts[name] += 1
        heapq.heappush(heap, (-_largest(containers[name], counts[name]), name))
    return {name: split_fused(size, counts[name]) for name, size in containers.items()}


def _largest(size: int, parts: int) -> int:
    return -(-size // parts)


def performance_first(scores: Mapping[str, float], bundles: int, *, evenly: bool = False) -> dict[str, int]:
    """Return further bundles per trial that can neither be fused nor split: all to the best, or evenly.

    Larger scores are better; ties by name.
    """
    order: Sequence[str] = sorted(scores, key=lambda name: (-scores[name], name))
    if not order:
        return {}
    if not evenly:
        return {order[0]: bundles}
    each, odd = divmod(bundles, len(order))
    return {name: each + (index < odd) for index, name in enumerate(order) if each + (index < odd)}
