"""What holds for every policy on every trace: counted at every event."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.core.errors import UnknownPolicy
from cluster.core.simulator.clock import Clockwork, checkpoint_cost
from cluster.core.simulator.run import POLICY_NAMES, simulate
from cluster.core.traces import NodeSpec
from cluster.core.workload import job_table

KINDS = st.sampled_from(["", "", "a", "b", "none-such"])
JOBS = st.lists(
    st.tuples(
        st.integers(0, 30),  # submit
        st.sampled_from([0, 1, 1, 1, 2, 3, 4, 6, 9, 40]),
        st.integers(0, 40),  # duration
        st.one_of(st.none(), st.integers(0, 120)),  # deadline length
        KINDS,
    ),
    min_size=1,
    max_size=14,
)
NODES = [NodeSpec("n0", 4, "a"), NodeSpec("n1", 4, "b"), NodeSpec("n2", 2, "a"), NodeSpec("n3", 0, "b")]
CAPACITY = {"": 10, "a": 6, "b": 4, "none-such": 0}


def table(rows):
    return job_table(
        ids=[str(number) for number in range(len(rows))],
        submit_s=[row[0] for row in rows],
        devices=[row[1] for row in rows],
        duration_s=[row[2] for row in rows],
        deadline_s=[np.inf if row[3] is None else row[0] + row[3] for row in rows],
        kinds=[row[4] for row in rows],
        users=[f"u{row[1] % 3}" for row in rows],
    )


def check(simulation: Clockwork) -> None:
    pool = simulation.pool
    held = [0] * len(pool.sizes)
    for row, slots in simulation.slots.items():
        assert sum(count for _, count in slots) == simulation.devices[row]
        for node, count in slots:
            held[node] += count
            assert simulation.allowed[int(simulation.jobs.kind[row])] >> node & 1
    assert [free + used for free, used in zip(pool.free, held, strict=True)] == pool.sizes
    assert min(pool.free) >= 0
    assert set(np.flatnonzero(simulation.jobs.running)) == set(simulation.slots)


@pytest.mark.parametrize("policy", POLICY_NAMES)
@given(rows=JOBS)
@settings(max_examples=15, deadline=None)
def test_no_device_is_given_twice_and_every_job_that_fits_ends(policy, rows):
    jobs = table(rows)
    result = simulate(jobs, NODES, policy, observer=check)
    too_large = [
        row
        for row in range(len(jobs))
        if jobs.devices[row] > CAPACITY[jobs.kinds[jobs.kind[row]] if jobs.kind[row] >= 0 else ""]
    ]
    assert set(too_large) <= set(result.refused.tolist())
    if policy != "deadline":
        assert result.refused.tolist() == too_large
    let_in = np.setdiff1d(np.arange(len(jobs)), result.refused)
    assert result.completed().tolist() == let_in.tolist()
    assert (result.start_s[let_in] >= jobs.submit_s[let_in]).all()
    assert (result.queue_s() >= -1e-9).all()
    if policy == "deadline":
        assert result.deadline_miss_rate() in (None, 0.0)
    again = simulate(jobs, NODES, policy)
    assert np.array_equal(again.end_s, result.end_s, equal_nan=True)
    assert again.preemptions == result.preemptions


@pytest.mark.parametrize("policy", ["srtf", "las", "themis", "deadline"])
@given(rows=JOBS)
@settings(max_examples=10, deadline=None)
def test_a_stop_that_costs_time_loses_no_work(policy, rows):
    result = simulate(table(rows), NODES, policy, cost=checkpoint_cost)
    rows_done = result.completed()
    assert (
        result.end_s[rows_done] - result.start_s[rows_done] >= result.jobs.duration_s[rows_done] - 1e-9
    ).all()


def test_ends_come_before_arrivals_and_both_before_one_decision():
    # b ends when c and d arrive: c is shorter, so SJF gives it the device at that instant.
    jobs = job_table(ids=list("bdc"), submit_s=[0, 10, 10], devices=[1, 1, 1], duration_s=[10, 9, 3])
    result = simulate(jobs, [NodeSpec("n", 1)], "sjf")
    assert dict(zip(result.jobs.ids, result.start_s.tolist(), strict=True)) == {
        "b": 0.0,
        "d": 13.0,
        "c": 10.0,
    }


def test_the_head_of_a_line_blocks_only_those_who_want_its_devices():
    nodes = [NodeSpec("x", 2, "b300"), NodeSpec("y", 2, "b200")]
    jobs = job_table(
        ids=["running", "head", "other", "behind", "any"],
        submit_s=[0, 1, 2, 3, 4],
        devices=[2, 2, 1, 1, 1],
        duration_s=[100, 10, 10, 10, 10],
        kinds=["b300", "b300", "b200", "b300", ""],
    )
    result = simulate(jobs, nodes, "fifo")
    assert result.start_s.tolist() == [0.0, 100.0, 2.0, 110.0, 110.0]


def test_las_demotes_only_above_the_threshold_and_on_rounds():
    # At 18,000 device-seconds exactly the first job is still in the first queue; one round later it is not.
    jobs = job_table(ids=["long", "late"], submit_s=[0, 18_010], devices=[1, 1], duration_s=[20_000, 100])
    result = simulate(jobs, [NodeSpec("n", 1)], "las")
    assert result.start_s.tolist() == [0.0, 18_060.0]
    assert result.preemptions == 1


def test_an_unknown_policy_or_placement_is_named():
    jobs = job_table(ids=["a"], submit_s=[0], devices=[1], duration_s=[1])
    with pytest.raises(UnknownPolicy, match="'x' is none of fifo"):
        simulate(jobs, NODES, "x")
    with pytest.raises(UnknownPolicy, match="consolidated"):
        simulate(jobs, NODES, "fifo", placement="x")


@pytest.mark.parametrize("policy", POLICY_NAMES)
@pytest.mark.parametrize("durations", [(0, 5), (5, 0), (0, 0), (3, 0)])
def test_a_job_that_takes_no_time_needs_its_devices_all_the_same(policy, durations):
    jobs = job_table(ids=["a", "b"], submit_s=[0, 0], devices=[1, 1], duration_s=list(durations))
    result = simulate(jobs, [NodeSpec("n", 1)], policy, observer=check)
    assert result.completed().tolist() == [0, 1]
