"""Which trials run together, and how groups share the devices.

Trials fuse only within a group of one shape (the batch size and whatever else changes an operator's shape)
and one epoch. A group is cut into even pieces no larger than its limit; more pieces than necessary are cut
where that shortens the longest device's work, with pieces placed longest first (LPT). Before anything is
measured a group's work is batch size times trials, as in Hydro (section 5.3).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuning.core.containers.cost import ShapeProfile

MOST_ROUNDS = 16
ENOUGH_PIECES = 8  # pieces per device; with more of them the devices even out by themselves
WORTHWHILE = 0.98  # another cut must shorten the plan to this share of its length


@dataclass(frozen=True)
class Candidate:
    """A trial that could run now: from epoch `epoch`, for `epochs_left` more."""

    trial: int
    shape: str
    epoch: int
    epochs_left: float
    alone: bool = False


@dataclass(frozen=True)
class Pack:
    """Trials that run in one container, and the seconds it is expected to take."""

    shape: str
    epoch: int
    trials: tuple[int, ...]
    seconds: float


def even_pieces(trials: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Cut trials into `count` pieces whose sizes differ by at most one."""
    small, larger = divmod(len(trials), count)
    pieces, at = [], 0
    for index in range(count):
        size = small + (index < larger)
        pieces.append(tuple(trials[at : at + size]))
        at += size
    return [piece for piece in pieces if piece]


def longest_load(packs: Sequence[Pack], busy_s: Sequence[float]) -> float:
    """Return when the last device ends if packs are placed longest first on the least loaded device."""
    loads = list(busy_s)
    for pack in sorted(packs, key=lambda pack: -pack.seconds):
        loads[loads.index(min(loads))] += pack.seconds
    return max(loads)


def plan_packs(
    candidates: Sequence[Candidate],
    profile_of: Callable[[str], ShapeProfile],
    limit_of: Callable[[str], int],
    busy_s: Sequence[float],
    start_s: float = 0.0,
) -> list[Pack]:
    """Return the containers for these trials, in the order in which devices should take them.

    `busy_s` is the remaining work of every device, 0 for a free one; `start_s` is the fixed cost of a
    container. Earlier epochs come first, so that rungs fill; among equals the longest comes first.
    """
    groups: dict[tuple[str, int, float], list[int]] = {}
    packs: list[Pack] = []
    for candidate in candidates:
        key = (candidate.shape, candidate.epoch, candidate.epochs_left)
        if candidate.alone:
            packs += _cut(key, [candidate.trial], 1, profile_of, start_s)
        else:
            groups.setdefault(key, []).append(candidate.trial)
    pieces = {key: -(-len(trials) // limit_of(key[0])) for key, trials in groups.items()}

    def packed(counts: Mapping[tuple[str, int, float], int]) -> list[Pack]:
        cut = (_cut(key, groups[key], counts[key], profile_of, start_s) for key in groups)
        return [*packs, *(pack for group in cut for pack in group)]

    tried = best = packed(pieces)
    refine = len(best) <= ENOUGH_PIECES * len(busy_s)
    for _ in range(MOST_ROUNDS if refine else 0):
        longest = max(tried, key=lambda pack: pack.seconds, default=None)
        if longest is None or len(longest.trials) == 1:
            break
        key = next(k for k in groups if longest.trials[0] in groups[k])
        pieces = {**pieces, key: pieces[key] + 1}
        tried = packed(pieces)
        if longest_load(tried, busy_s) < longest_load(best, busy_s) * WORTHWHILE:
            best = tried
    return sorted(best, key=lambda pack: (pack.epoch, -pack.seconds, pack.trials))


def _cut(
    key: tuple[str, int, float],
    trials: Sequence[int],
    count: int,
    profile_of: Callable[[str], ShapeProfile],
    start_s: float,
) -> list[Pack]:
    shape, epoch, epochs_left = key
    profile = profile_of(shape)
    return [
        Pack(shape, epoch, piece, start_s + run_seconds(profile, len(piece), epochs_left))
        for piece in even_pieces(trials, count)
    ]


def run_seconds(profile: ShapeProfile, size: int, epochs: float) -> float:
    """Return the predicted seconds of `epochs` epochs of `size` fused trials."""
    return epochs * profile.steps_per_epoch * profile.seconds(size)
