"""Promises: what can be kept, and the earliest deadline that could be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.core.placement import NodePool
from cluster.core.policies.deadline import Promise, earliest_deadline, plan_in_order
from cluster.core.simulator.deadlines import simulate_deadlines
from cluster.core.traces import NodeSpec, even_nodes
from cluster.core.workload import job_table

PROMISES = st.lists(
    st.builds(
        lambda deadline, duration, devices: (deadline, duration, devices),
        st.integers(5, 60),
        st.integers(1, 20),
        st.integers(1, 5),
    ),
    max_size=6,
)


def test_a_plan_starts_in_order_on_what_comes_free():
    pool = NodePool([4])
    pool.take(0, 3)
    queue = [Promise(20.0, 0, 5.0, 2), Promise(30.0, 1, 5.0, 1)]
    assert plan_in_order(pool, [(10.0, [(0, 3)])], queue, 0.0) == [15.0, 15.0]
    assert plan_in_order(pool, [(10.0, [(0, 3)])], [Promise(14.0, 0, 5.0, 2)], 0.0) is None
    assert pool.free == [1]


@given(PROMISES, st.integers(1, 20), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_the_earliest_deadline_is_the_first_whole_second_that_a_search_finds(rows, duration, devices):
    pool = NodePool([4, 2])
    queue = []
    for row, (deadline, length, gang) in enumerate(rows):
        trial = sorted([*queue, Promise(float(deadline), row, float(length), gang)])
        if plan_in_order(pool, [], trial, 0.0) is not None:
            queue = trial
    found = earliest_deadline(pool, [], queue, Promise(0.0, 99, float(duration), devices), 0.0)
    for deadline in range(200):
        trial = sorted([*queue, Promise(float(deadline), 99, float(duration), devices)])
        if plan_in_order(pool, [], trial, 0.0) is not None:
            assert deadline - 1 < found <= deadline
            break
    else:
        assert devices > 6


def test_a_gang_beyond_the_cluster_has_no_deadline_that_would_do():
    assert earliest_deadline(NodePool([2]), [], [], Promise(0.0, 0, 1.0, 3), 0.0) == np.inf


def test_a_job_with_a_deadline_takes_devices_from_one_without():
    jobs = job_table(
        ids=["soft", "strict"],
        submit_s=[0, 10],
        devices=[8, 8],
        duration_s=[100, 20],
        deadline_s=[np.inf, 40],
    )
    result = simulate_deadlines(jobs, even_nodes(8))
    assert result.end_s.tolist() == [120.0, 30.0]
    assert result.preemptions == 1


def test_a_refusal_says_which_deadline_would_do():
    jobs = job_table(
        ids=["a", "b"], submit_s=[0, 0], devices=[4, 4], duration_s=[50, 10], deadline_s=[55, 30]
    )
    result = simulate_deadlines(jobs, [NodeSpec("n", 4)], suggest=True)
    assert result.refused.tolist() == [1]
    assert result.earliest_deadline_s == {1: pytest.approx(60.0)}
    accepted = job_table(
        ids=["a", "b"], submit_s=[0, 0], devices=[4, 4], duration_s=[50, 10], deadline_s=[55, 60]
    )
    assert not len(simulate_deadlines(accepted, [NodeSpec("n", 4)]).refused)
