"""Reservations in time for jobs that are blocked: when they will start, and what must stay free for that."""

import math
from dataclasses import dataclass

from cluster.core.decision.round import Round, place_in_topology
from cluster.core.decision.state import JobView, Slice
from cluster.core.errors import CapacityError
from cluster.core.placement.devices import DevicePool


@dataclass(slots=True)
class Shadow:
    """A blocked job's start by the running jobs' limits, and the devices as they will be beside it then."""

    job_id: str
    kind: str
    start_s: float
    pool: DevicePool

    def lets_pass(self, ends_s: float, slices: list[Slice]) -> bool:
        """Whether a start now delays the blocked job not at all; then it counts against what is left."""
        if ends_s <= self.start_s:
            return True
        taken: list[Slice] = []
        for piece in slices:
            try:
                self.pool.occupy([piece])
            except CapacityError:
                self.pool.release(taken)
                return False
            taken.append(piece)
        return True

    def undo(self, ends_s: float, slices: list[Slice]) -> None:
        """Take back what `lets_pass` counted."""
        if ends_s > self.start_s:
            self.pool.release(slices)


def cast_shadow(round_: Round, job: JobView, earlier: list[Shadow]) -> Shadow | None:
    """Return the earliest reservation for a blocked job, or None where no limit tells when devices come free.

    `earlier` are the reservations of jobs before it; what they keep is taken as kept for good.
    """
    shadows = [
        shadow
        for kind, allowed in round_.options(job)
        if (shadow := _on_kind(round_, job, kind, allowed, earlier)) is not None
    ]
    return min(shadows, key=lambda shadow: shadow.start_s, default=None)


def _on_kind(round_: Round, job: JobView, kind: str, allowed: int, earlier: list[Shadow]) -> Shadow | None:
    base = next((shadow.pool for shadow in reversed(earlier) if shadow.kind == kind), None)
    if base is None:
        return _first_fit(round_, job, kind, allowed, _ends(round_, kind))
    pool = base.copy()
    slices = place_in_topology(pool, job, allowed)
    start_s = max(shadow.start_s for shadow in earlier if shadow.kind == kind)
    return Shadow(job.id, kind, start_s, pool) if slices is not None else None


def _first_fit(
    round_: Round, job: JobView, kind: str, allowed: int, ends: list[tuple[float, str, JobView]]
) -> Shadow | None:
    """Find the first end after which the job fits: doubling, then halving."""

    def after(count: int) -> DevicePool | None:
        pool = round_.pool.copy()
        for _, _, running in ends[:count]:
            pool.release(running.placement)
        return pool if place_in_topology(pool, job, allowed) is not None else None

    low, high = 0, 1
    while high < len(ends) and after(high) is None:
        low, high = high, 2 * high
    high = min(high, len(ends))
    if not ends or after(high) is None:
        return None
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if after(middle) is not None else (middle, high)
    pool = after(high)
    return None if pool is None else Shadow(job.id, kind, ends[high - 1][0], pool)


def _ends(round_: Round, kind: str) -> list[tuple[float, str, JobView]]:
    """Return when the running jobs of a kind end by their limits, earliest first; without one, never."""
    now, kind_of = round_.now, round_.kind_of
    ends = [
        (max(now, running.started_s + running.limit_s), name, running)
        for name, running in round_.running.items()
        if running.limit_s is not None and running.started_s is not None and kind_of.get(name) == kind
    ]
    ends.sort()
    while ends and ends[-1][0] == math.inf:
        ends.pop()
    return ends
