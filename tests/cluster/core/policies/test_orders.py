"""Orders that can be written down by hand."""

import numpy as np
import pytest

from cluster.core.policies import ORDERED, policy_by_name
from cluster.core.policies.fair import FairShare
from cluster.core.policies.gittins import gittins_table
from cluster.core.policies.themis import FinishTimeFairness, finish_time_fairness
from cluster.core.workload import JobTable, job_table


def waiting() -> JobTable:
    return job_table(
        ids=["a", "b", "c", "d"],
        submit_s=[0, 1, 2, 3],
        devices=[1, 8, 2, 1],
        duration_s=[50, 10, 20, 20],
        deadline_s=[500, np.inf, 90, 100],
    )


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("fifo", "abcd"),
        ("fifo-skip", "abcd"),
        ("backfill", "abcd"),
        ("conservative", "abcd"),
        ("sjf", "bcda"),
        ("srtf", "bcda"),
        ("srsf", "dcab"),
        ("las", "abcd"),
        ("edf", "cdab"),
        ("least-slack", "cdab"),
        ("deadline", "cdab"),
    ],
)
def test_the_order_of_each_policy(policy, order):
    jobs = waiting()
    rows = policy_by_name(policy, 8).order(jobs, np.arange(4), 4.0)
    assert "".join(jobs.ids[row] for row in rows) == order


@pytest.mark.parametrize("policy", ORDERED)
def test_every_policy_orders_every_row_once_and_has_a_title(policy):
    made = policy_by_name(policy, 8)
    assert sorted(made.order(waiting(), np.arange(4), 4.0).tolist()) == [0, 1, 2, 3]
    assert made.title
    assert made.name == policy


def test_the_platforms_own_order_is_slack_then_fair_rank_then_arrival():
    jobs = waiting()
    jobs.fair_rank[:] = [-0.1, -0.9, -0.5, -0.5]
    # c has 90 - 4 - 20 = 66 s of slack, d 76 s: the same step; a 446 s: the same; b has no deadline.
    assert FairShare().order(jobs, np.arange(4), 4.0).tolist() == [2, 3, 0, 1]
    assert FairShare(urgent_s=0.0).order(jobs, np.arange(4), 4.0).tolist() == [1, 2, 3, 0]


def test_rho_is_one_for_a_job_that_gets_all_it_asks_at_once():
    jobs = waiting()
    assert finish_time_fairness(jobs, np.arange(1), 0.0, 8)[0] == 1.0
    # 8 devices among 4 jobs: alone, b would have 2 of its 8 and need 4 times as long
    assert finish_time_fairness(jobs, np.arange(4), 1.0, 8)[1] == pytest.approx(10 / 40)


def test_a_lease_protects_until_it_ends():
    jobs = waiting()
    jobs.running[1] = True
    policy = FinishTimeFairness(8, lease_s=100.0)
    assert policy.order(jobs, np.arange(4), 50.0)[0] == 1
    assert policy.order(jobs, np.arange(4), 100.0)[0] != 1
    assert policy.next_review_s(jobs, np.arange(4), 100.0) == 200.0


def test_the_gittins_index_of_an_exponential_is_flat_and_of_a_fixed_size_grows():
    rng = np.random.default_rng(0)
    _, exponential = gittins_table(np.sort(rng.exponential(10.0, 50_000)))
    assert exponential[:100] == pytest.approx(np.full(100, 0.1), rel=0.15)
    _, mixed = gittins_table(np.sort(np.concatenate([np.full(500, 1.0), np.full(500, 100.0)])))
    # Half of all jobs end after 1: 0.5 / 1 at the start, 1 / 99 once the short ones are gone.
    assert mixed.tolist() == pytest.approx([0.5, 1 / 99])
