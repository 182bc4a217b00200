"""Two jobs on the same devices: who joins whom, within which quota, and back again."""

import pytest

from cluster.core.decision import ClusterState, JobView, NodeView, Slice, decide
from cluster.core.fairness.quota import TeamQuota
from cluster.core.policies import live_policy
from cluster.core.requests import gang

NODES = (NodeView("n", 2, "x"),)


def job(name, keeps, remaining_s=100.0, **fields):
    return JobView(name, gang(2), 0.0, keeps=keeps, expected_s=(remaining_s,) * 3, **fields)


def running(name, keeps, milli=1000, **fields):
    placement = (Slice("n", 0, milli), Slice("n", 1, milli))
    return job(name, keeps, running=True, started_s=1.0, placement=placement, **fields)


def outcome(*jobs, policy="lucid", teams=()):
    return decide(ClusterState(NODES, jobs, teams), live_policy(policy, 2), 50.0)


@pytest.mark.parametrize(
    ("host", "guest", "joins"),
    [
        (0.8, 0.8, True),
        (0.8, 0.3, False),  # it would crawl
        (0.6, 0.55, False),  # together hardly more than one alone
        (0.0, 0.9, False),  # the host wants no company
        (0.9, 0.0, False),
    ],
)
def test_a_job_joins_where_both_stay_fast(host, guest, joins):
    found = outcome(running("host", host), job("guest", guest))
    assert [start.job_id for start in found.starts] == (["guest"] if joins else [])
    assert [(entry.job_id, entry.milli) for entry in found.resized] == ([("host", 500)] if joins else [])
    assert all(piece.milli == 500 for start in found.starts for piece in start.slices)


def test_a_device_is_shared_by_two_at_most():
    found = outcome(running("a", 0.9, 500), running("b", 0.9, 500), job("c", 0.9))
    assert (found.starts, found.resized) == ((), ())
    assert found.waits["c"].reason == "waiting_for_devices"


def test_who_is_left_alone_has_the_whole_device_again_under_any_policy():
    for policy in ("lucid", "fair", "srtf"):
        found = outcome(running("a", 0.9, 500), policy=policy)
        assert [(entry.job_id, entry.milli) for entry in found.resized] == [("a", 1000)]


def test_a_guest_counts_against_its_own_teams_quota():
    teams = (TeamQuota("x", guaranteed={"x": 2000}), TeamQuota("y", borrow_limit={"x": 900}))
    found = outcome(running("host", 0.9, team="x"), job("guest", 0.9, team="y"), teams=teams)
    assert (found.starts, found.resized) == ((), ())
    teams = (teams[0], TeamQuota("y"))
    found = outcome(running("host", 0.9, team="x"), job("guest", 0.9, team="y"), teams=teams)
    assert len(found.starts) == 1


def test_other_policies_share_nothing():
    found = outcome(running("host", 0.9), job("guest", 0.9), policy="fair")
    assert (found.starts, found.resized) == ((), ())
