"""Rounds on devices of several kinds: jobs whose speed depends on the kind they get."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.core.policies.gavel import ROUND_S, Shares, assign_round
from cluster.core.traces.throughputs import Throughputs
from cluster.core.workload import FloatColumn, IntColumn

GANGS, GANG_SHARES = (1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05)
KINDS = ("v100", "p100", "k80")


@dataclass(frozen=True, slots=True)
class KindedJobs:
    """J jobs that run at different speeds on T kinds.

    Attributes:
        steps: work (J,).
        speed: steps per second of the whole gang (J, T).
    """

    submit_s: FloatColumn
    devices: IntColumn
    steps: FloatColumn
    speed: NDArray[np.float64]


def generate_jobs(
    throughputs: Throughputs,
    count: int,
    jobs_per_hour: float,
    rng: np.random.Generator,
    kinds: tuple[str, ...] = KINDS,
) -> KindedJobs:
    """Draw jobs as Gavel's public generator does (OSDI 2020, section 7.1); infinite rate: all at once.

    Run times on the first kind are 60 * 10^U(1.5, 3) s with probability 0.8, otherwise 60 * 10^U(3, 4) s.
    """
    by_gang = {
        gang: [
            job
            for job in throughputs.job_types()
            if job[1] == gang and all(throughputs.alone.get((kind, job), 0.0) > 0 for kind in kinds)
        ]
        for gang in GANGS
    }
    devices = rng.choice(GANGS, size=count, p=GANG_SHARES)
    types = [by_gang[gang][rng.integers(len(by_gang[gang]))] for gang in devices.tolist()]
    speed = np.array([[throughputs.alone[kind, job] for kind in kinds] for job in types])
    exponent = np.where(rng.random(count) < 0.8, rng.uniform(1.5, 3.0, count), rng.uniform(3.0, 4.0, count))
    gaps = np.zeros(count) if np.isinf(jobs_per_hour) else rng.exponential(3600.0 / jobs_per_hour, count)
    return KindedJobs(np.cumsum(gaps), devices.astype(np.int64), 60.0 * 10.0**exponent * speed[:, 0], speed)


@dataclass(frozen=True, slots=True)
class KindedResult:
    """End of every job, and the time it took to simulate."""

    end_s: FloatColumn
    completion_s: FloatColumn
    makespan_s: float
    wall_s: float


def simulate_kinds(
    jobs: KindedJobs, workers: IntColumn, shares_of: Shares, round_s: float = ROUND_S
) -> KindedResult:
    """Run rounds until every job has ended; shares are computed anew when jobs came or ended."""
    began = time.perf_counter()
    count = len(jobs.steps)
    left = jobs.steps.copy()
    received = np.zeros_like(jobs.speed)
    end_s = np.full(count, np.nan)
    active: IntColumn = np.zeros(0, dtype=np.int64)
    shares = np.zeros((0, len(workers)))
    now = 0.0
    while np.isnan(end_s).any():
        present = np.flatnonzero(np.isnan(end_s) & (jobs.submit_s <= now))
        if not len(present):
            now = float(jobs.submit_s[np.isnan(end_s)].min())
            continue
        if not np.array_equal(present, active):
            active = present
            shares = shares_of(jobs.speed[active], jobs.devices[active], workers, left[active])
            received[active] = 0.0
        kind = assign_round(shares, received[active], jobs.speed[active], jobs.devices[active], workers)
        runs = active[kind >= 0]
        kind = kind[kind >= 0]
        received[runs, kind] += 1.0
        done_s = left[runs] / jobs.speed[runs, kind]
        ended = done_s <= round_s
        end_s[runs[ended]] = now + done_s[ended]
        left[runs] -= jobs.speed[runs, kind] * round_s
        now += round_s
    makespan = float(end_s.max() - jobs.submit_s.min())
    return KindedResult(end_s, end_s - jobs.submit_s, makespan, time.perf_counter() - began)


Generator = Callable[[np.random.Generator], KindedJobs]
