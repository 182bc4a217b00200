"""Gavel's time shares as an order of the live queue."""

import numpy as np
import pytest

from cluster.core.decision import ClusterState, JobView, NodeView, Slice, decide
from cluster.core.policies import live_policy
from cluster.core.requests import gang

NODES = (NodeView("a", 2, "new"), NodeView("b", 2, "old"))
GAVEL = ("gavel", "gavel-makespan", "gavel-finish-time")


def job(name, new=1.0, old=1.0, submitted_s=0.0, **fields):
    fields = {"expected_s": (100.0, 100.0, 100.0), **fields}
    return JobView(name, gang(2), submitted_s, speeds=(("new", new), ("old", old)), **fields)


def on(name, node, **fields):
    return job(name, running=True, started_s=0.0, placement=(Slice(node, 0), Slice(node, 1)), **fields)


def placed(*jobs, policy="gavel", now=1000.0):
    found = decide(ClusterState(NODES, jobs), live_policy(policy, 4), now)
    return {start.job_id: start.slices[0].node for start in found.starts}, found


@pytest.mark.parametrize(("policy", "on_new"), [("gavel", "fast"), ("gavel-makespan", "plain")])
def test_the_new_kind_goes_to_whom_it_helps_most_or_to_whom_all_would_wait_for(policy, on_new):
    where, _ = placed(job("plain", 1.2), job("fast", 8.0), policy=policy)
    assert sorted(where) == ["fast", "plain"]
    assert where[on_new] == "a"


@pytest.mark.parametrize("policy", GAVEL)
def test_kinds_that_a_job_may_not_use_are_never_tried(policy):
    where, found = placed(job("x", 9.0, kinds=("old",)), job("y", 9.0, kinds=("old",)), policy=policy)
    assert set(where.values()) == {"b"}
    assert len(where) == 1
    assert len(found.waits) == 1


def test_who_has_had_less_of_its_share_goes_next():
    had = job("had", 4.0, received=(("new", 5000.0),))
    where, _ = placed(had, job("fresh", 4.0), job("third", 4.0, received=(("new", 4000.0),)))
    assert where["fresh"] == "a"


def test_a_job_on_the_wrong_kind_gives_its_place_to_the_right_one():
    slow = on("slow", "a", new=1.0, old=1.0)
    other = on("other", "b", new=1.0, old=1.0)
    where, found = placed(slow, other, job("fast", 50.0, 0.1))
    assert where == {"fast": "a"}
    assert [(entry.job_id, entry.cause) for entry in found.preemptions] == [("slow", "policy")]


def test_a_queue_of_a_thousand_is_ordered_whole():
    rng = np.random.default_rng(0)
    jobs = [job(f"j{n}", float(rng.uniform(1, 5)), submitted_s=float(n)) for n in range(600)]
    for policy in GAVEL:
        _, found = placed(*jobs, policy=policy)
        assert len(found.order) == 600
        assert len(found.starts) == 2
