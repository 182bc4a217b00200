"""Simulation of elastic jobs: widths chosen anew on rounds and whenever a job comes or ends."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.core.policies.pollux import ElasticJob, allocate_widths
from cluster.core.workload import FloatColumn

ROUND_S = 60.0
RESTART_S = 30.0


@dataclass(frozen=True, slots=True)
class ElasticWork:
    """A job to simulate: when it comes, its useful work, its widths and its speed at each."""

    name: str
    submit_s: float
    work: float
    smallest: int
    largest: int
    speed: Callable[[int], float]


Allocate = Callable[[Sequence[ElasticJob], int], dict[str, int]]


def rigid_widths(wanted: dict[str, int]) -> Allocate:
    """Return a rule that gives each job a width of its own or nothing, first come, first served."""

    def allocate(jobs: Sequence[ElasticJob], devices: int) -> dict[str, int]:
        left = devices
        widths = {}
        for job in sorted(jobs, key=lambda job: job.current == 0):
            width = wanted[job.name]
            widths[job.name] = width if width <= left else 0
            left -= widths[job.name]
        return widths

    return allocate


def simulate_elastic(
    jobs: Sequence[ElasticWork],
    devices: int,
    allocate: Allocate = allocate_widths,
    *,
    restart_s: float = RESTART_S,
    round_s: float = ROUND_S,
) -> FloatColumn:
    """Return when each job ends (J,); a change of width costs a restart.

    Jobs that ask for more than the cluster at least never end (infinite).
    """
    left = {job.name: job.work for job in jobs if job.smallest <= devices}
    width = dict.fromkeys(left, 0)
    idle_until = dict.fromkeys(left, 0.0)
    ends: dict[str, float] = {}
    now = min((job.submit_s for job in jobs), default=0.0)
    by_name = {job.name: job for job in jobs}
    while left:
        present = [job for job in jobs if job.name in left and job.submit_s <= now]
        views = [
            ElasticJob(j.name, j.smallest, min(j.largest, devices), j.speed, width[j.name]) for j in present
        ]
        for name, new in allocate(views, devices).items():
            if new and new != width[name] and left[name] < by_name[name].work:
                idle_until[name] = now + restart_s
            width[name] = new
        arrivals = [job.submit_s for job in jobs if job.name in left and job.submit_s > now]
        finish = {
            job.name: max(now, idle_until[job.name]) + left[job.name] / job.speed(width[job.name])
            for job in present
            if width[job.name]
        }
        then = min([*arrivals, *finish.values(), now + round_s if present else math.inf])
        for job in present:
            if not width[job.name]:
                continue
            left[job.name] -= job.speed(width[job.name]) * max(0.0, then - max(now, idle_until[job.name]))
            if finish[job.name] <= then:
                ends[job.name] = then
                del left[job.name]
        now = then
    return np.array([ends.get(job.name, math.inf) for job in jobs])
