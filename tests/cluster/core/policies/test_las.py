"""Queue levels, promotion and their timing."""

import math

import numpy as np

from cluster.core.policies.las import LeastAttainedService
from cluster.core.simulator.run import simulate
from cluster.core.traces import NodeSpec
from cluster.core.workload import JobTable, job_table


def running(attained: list[float], devices: list[int], now: float) -> JobTable:
    jobs = job_table(
        ids=[str(n) for n in range(len(devices))],
        submit_s=[0.0] * len(devices),
        devices=devices,
        duration_s=[1e6] * len(devices),
    )
    jobs.attained_device_s[:] = attained
    jobs.running[:] = True
    jobs.started_s[:] = jobs.refreshed_s[:] = now
    return jobs


def test_the_next_round_after_the_crossing_is_named():
    policy = LeastAttainedService()
    rows = np.arange(2)
    # 4 devices need another 1,500 s: 6,000 missing device-seconds; the other one needs 18,000 s.
    assert policy.next_review_s(running([12_000, 0], [4, 1], now=30.0), rows, 30.0) == 1560.0
    assert policy.next_review_s(running([18_000, 0], [4, 1], now=60.0), rows[:1], 60.0) == 120.0


def test_the_threshold_itself_is_still_inside():
    policy = LeastAttainedService([100.0, 200.0])
    jobs = running([100.0, 100.5, 200.0, 201.0], [1, 1, 1, 1], 0.0)
    policy.review(jobs, np.arange(4), 0.0)
    assert jobs.level.tolist() == [0, 1, 1, 2]
    assert policy.order(jobs, np.arange(4), 0.0).tolist() == [0, 1, 2, 3]


def test_a_starved_job_is_promoted_and_starts_again_from_the_first_queue():
    policy = LeastAttainedService(promote_after=2.0)
    jobs = running([30_000.0], [1], 0.0)
    jobs.running[0] = False
    jobs.level[0] = 1
    jobs.executed_s[0] = 500.0
    jobs.waiting_since_s[0] = 40.0
    assert policy.next_review_s(jobs, np.arange(1), 100.0) == 1080.0
    policy.review(jobs, np.arange(1), 1080.0)
    assert (jobs.level[0], jobs.promoted_device_s[0]) == (0, 30_000.0)


def test_promotion_bounds_the_wait_of_a_long_job_under_a_stream_of_short_ones():
    count = 400
    jobs = job_table(
        ids=["long", *(str(n) for n in range(count))],
        submit_s=[0.0, *(600.0 * n for n in range(count))],
        devices=[1] * (count + 1),
        duration_s=[40_000.0, *([600.0] * count)],
    )
    node = [NodeSpec("n", 1)]
    ends = {
        knob: simulate(jobs, node, LeastAttainedService([3000.0], promote_after=knob)).end_s[0]
        for knob in (0.2, math.inf)
    }
    assert ends[math.inf] == 280_000.0  # behind every short job
    assert ends[0.2] < 100_000.0
