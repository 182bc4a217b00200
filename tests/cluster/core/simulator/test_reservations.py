"""Backfill delays nobody it has promised a start."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.core.simulator.run import simulate
from cluster.core.traces import NodeSpec, even_nodes
from cluster.core.workload import job_table

JOBS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([1, 1, 2, 3, 4, 6, 8, 11]), st.integers(1, 30)),
    min_size=1,
    max_size=20,
)


def table(rows):
    submit, devices, duration = (list(column) for column in zip(*rows, strict=True))
    return job_table(
        ids=[str(n) for n in range(len(rows))], submit_s=submit, devices=devices, duration_s=duration
    )


def test_a_short_job_passes_the_head_and_a_long_one_does_not():
    jobs = job_table(
        ids=["runs", "head", "long", "short"],
        submit_s=[0, 1, 2, 3],
        devices=[6, 8, 2, 2],
        duration_s=[10, 5, 20, 7],
    )
    result = simulate(jobs, even_nodes(8), "backfill")
    assert result.start_s.tolist() == [0.0, 10.0, 15.0, 3.0]


def test_a_long_job_passes_on_devices_the_head_does_not_need():
    jobs = job_table(
        ids=["runs", "head", "long"], submit_s=[0, 1, 2], devices=[8, 8, 4], duration_s=[10, 5, 99]
    )
    result = simulate(jobs, [NodeSpec("a", 8), NodeSpec("b", 4)], "backfill")
    assert result.start_s.tolist() == [0.0, 10.0, 2.0]


@given(JOBS)
@settings(max_examples=40, deadline=None)
def test_under_conservative_backfill_no_later_arrival_moves_anybody(rows):
    jobs = table(sorted(rows))
    nodes = [NodeSpec("a", 8), NodeSpec("b", 3)]
    whole = simulate(jobs, nodes, "conservative").start_s
    for count in range(1, len(rows)):
        assert np.array_equal(
            simulate(table(sorted(rows)[:count]), nodes, "conservative").start_s, whole[:count]
        )


@given(JOBS)
@settings(max_examples=40, deadline=None)
def test_the_first_blocked_job_starts_no_later_than_with_nobody_behind_it(rows):
    rows = sorted(rows)
    nodes = even_nodes(11)
    everyone = simulate(table(rows), nodes, "backfill").start_s
    waited = np.flatnonzero(everyone > [row[0] for row in rows])
    if len(waited):
        head = int(waited[0])
        alone = simulate(table(rows[: head + 1]), nodes, "backfill").start_s
        assert everyone[head] <= alone[head]
