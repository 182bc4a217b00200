"""Deadlines with admission (after Chronus: Gao et al., SoCC 2021).

A job with a deadline is let in only if a complete plan exists in which it and everyone let in before
end on time; the plan is then simply followed, so with true run times no promise is ever broken.
Chronus bounds demand per horizon and solves a MILP over leases; here the plan is the very schedule
that will run (earliest deadline first, in order, with real placement), so fragmentation is in it too.
"""

import heapq
import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster.core.placement.pool import NodePool, Slots
from cluster.core.placement.rules import PlaceRule, place_consolidated
from cluster.core.policies.interface import Blocking, Policy
from cluster.core.workload import IntColumn, JobTable


class EarliestDeadlineFirst(Policy):
    """By deadline, jobs without one behind, shortest first; nobody is refused."""

    name = "edf"
    title = "Earliest deadline first, without admission"
    static = True

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        return rows[np.lexsort((rows, jobs.duration_s[rows], jobs.deadline_s[rows]))]


class LeastSlackFirst(EarliestDeadlineFirst):
    """By the latest start that still meets the deadline, jobs without one behind, shortest first."""

    name = "least-slack"
    title = "Least slack first, without admission"

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        latest_start = jobs.deadline_s[rows] - jobs.duration_s[rows]
        return rows[np.lexsort((rows, jobs.duration_s[rows], latest_start))]


class DeadlineAdmission(EarliestDeadlineFirst):
    """Earliest deadline first with admission; jobs without a deadline take what is left and give way."""

    name = "deadline"
    title = "Deadlines with admission: promises are kept or refused at submission"
    blocking = Blocking.SKIP
    promises = True


@dataclass(order=True, slots=True)
class Promise:
    """A job with a deadline that waits: its row, gang size, run time and where it may go."""

    deadline_s: float
    row: int
    duration_s: float = field(compare=False)
    devices: int = field(compare=False)
    allowed: int = field(compare=False, default=-1)


def plan_in_order(
    pool: NodePool,
    running: Sequence[tuple[float, Slots]],
    queue: Sequence[Promise],
    now: float,
    place: PlaceRule = place_consolidated,
) -> list[float] | None:
    """Return when each job of the queue ends, started in order, or None as soon as one is late.

    Args:
        pool: devices that no job with a deadline holds; left as it is.
        running: (end, placement) of the running jobs with a deadline.
    """
    pool, ends, time = pool.copy(), list(running), now
    heapq.heapify(ends)
    finish: list[float] = []
    for job in queue:
        slots = place(pool, job.devices, job.allowed)
        while slots is None:
            if not ends:
                return None
            time = max(time, ends[0][0])
            while ends and ends[0][0] <= time:
                pool.give_all(heapq.heappop(ends)[1])
            slots = place(pool, job.devices, job.allowed)
        end_s = time + job.duration_s
        if end_s > job.deadline_s:
            return None
        finish.append(end_s)
        heapq.heappush(ends, (end_s, slots))
    return finish


def earliest_deadline(
    pool: NodePool,
    running: Sequence[tuple[float, Slots]],
    queue: Sequence[Promise],
    wanted: Promise,
    now: float,
    place: PlaceRule = place_consolidated,
) -> float:
    """Return the earliest deadline with which a job would be let in now; infinite if it can never run.

    Its row has to be the largest: among equal deadlines it stands last.

    Jobs start in order, so one that goes behind all others delays nobody: an answer exists whenever the
    job fits the cluster at all.
    """
    edges = sorted({job.deadline_s for job in queue if job.deadline_s >= now})
    for low, high in zip([now, *edges], [*edges, math.inf], strict=True):
        trial = sorted(queue)
        # Ties go by row; the job stands behind those with the deadline `low` and before those with `high`.
        probe = Promise(
            math.nextafter(high, -math.inf), wanted.row, wanted.duration_s, wanted.devices, wanted.allowed
        )
        insort(trial, probe)
        finish = plan_in_order(pool, running, trial, now, place)
        if finish is not None:
            return max(finish[trial.index(probe)], low)
    return math.inf
