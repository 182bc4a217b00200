"""What holds at every decision of a queue played forward."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.core.decision import (
    ClusterState,
    JobView,
    NodeView,
    Settings,
    decide,
    state_from_record,
    state_record,
)
from cluster.core.decision.sharing import asks_whole
from cluster.core.fairness.quota import TeamQuota
from cluster.core.policies import LIVE, live_policy
from cluster.core.requests import TaskShape, gang
from cluster.core.simulator.rehearsal import rehearse

NODES = (NodeView("a", 4, "new"), NodeView("b", 4, "new", unusable=(3,)), NodeView("c", 2, "old"))
TEAMS = (
    TeamQuota("x", guaranteed={"new": 3000, "old": 1000}),
    TeamQuota(
        "y", guaranteed={"new": 3000, "old": 1000}, borrow_limit={"new": 2000}, lend_limit={"new": 1000}
    ),
)
SETTINGS = Settings(min_runtime_s=50.0, bounded_wait_s=2000.0, most_evictions=2)
SHAPES = st.sampled_from(
    [
        gang(1),
        gang(2),
        gang(3),
        gang(5),
        (TaskShape(1, 1, 500),),
        (TaskShape(2, 1), TaskShape(1, 1, 300)),
        gang(0),
        gang(64),
    ]
)


@st.composite
def queues(draw) -> tuple[list[JobView], dict[str, float]]:
    jobs, runtimes = [], {}
    for number in range(draw(st.integers(1, 9))):
        name = f"j{number}"
        runtimes[name] = float(draw(st.integers(1, 400)))
        jobs.append(
            JobView(
                name,
                draw(SHAPES),
                float(draw(st.integers(0, 300))),
                team=draw(st.sampled_from(["x", "y"])),
                user=draw(st.sampled_from(["u", "v"])),
                kinds=draw(st.sampled_from([(), ("new",), ("old",), ("old", "new")])),
                job_class=draw(st.integers(0, 2)),
                limit_s=runtimes[name] + draw(st.integers(0, 50)),
                deadline_s=draw(st.none() | st.floats(0, 3000)),
                speeds=draw(st.sampled_from([(), (("new", 2.0),), (("new", 0.5), ("old", 1.5))])),
                keeps=draw(st.sampled_from([0.0, 0.7, 1.0])),
            )
        )
    return jobs, runtimes


def check(before: ClusterState, found, after: ClusterState) -> None:
    free = {}
    for node in after.nodes:
        free.update(
            {(node.name, device): 1000 for device in range(node.devices) if device not in node.unusable}
        )
    for job in after.jobs:
        assert job.running or not job.placement
        for piece in job.placement:
            free[piece.node, piece.device] -= piece.milli  # KeyError: an unusable device
    assert min(free.values()) >= 0
    for start in found.starts:
        job = next(job for job in before.jobs if job.id == start.job_id)
        shares = job.keeps and start.slices and start.slices[0].milli == 500 and asks_whole(job)
        given_milli = sum(piece.milli for piece in start.slices) * (2 if shares else 1)
        assert given_milli == sum(task.total_milli() for task in job.tasks)
    pending = {job.id for job in after.jobs if not job.running}
    stopped_now = {entry.job_id for entry in found.preemptions}
    assert pending - stopped_now == set(found.waits)
    assert all(wait.reason and wait.message and wait.next_step for wait in found.waits.values())
    for entry in found.devices.values():
        assert entry["used"] + entry["free"] + entry["drained"] == entry["total"]


@pytest.mark.parametrize("policy", LIVE)
@given(queues())
@settings(max_examples=12, deadline=None)
def test_gangs_are_whole_devices_given_once_reasons_complete_and_everybody_ends(policy, queue):
    jobs, runtimes = queue
    state = ClusterState(NODES, (), TEAMS, settings=SETTINGS)
    outcome = rehearse(state, live_policy(policy, 10), runtimes, arrivals=jobs, watch=check)
    assert set(outcome.ends_s) | set(outcome.stranded) == {job.id for job in jobs}
    assert set(outcome.stranded.values()) <= {"unsatisfiable", "quota_ceiling"}
    if policy != "deadline":  # a promise binds everybody, however often they gave way
        assert max(outcome.evictions.values(), default=0) <= SETTINGS.most_evictions
    for job in jobs:
        if job.id in outcome.ends_s:
            fastest = max([1.0, *(speed for _, speed in job.speeds)])
            assert outcome.ends_s[job.id] - job.submitted_s >= runtimes[job.id] / fastest - 1e-6


@given(queues(), st.sampled_from(list(LIVE)), st.integers(0, 500))
@settings(max_examples=40, deadline=None)
def test_a_logged_state_gives_the_same_decision_again(queue, policy, now):
    state = ClusterState(NODES, tuple(queue[0]), TEAMS, settings=SETTINGS)
    again = state_from_record(json.loads(json.dumps(state_record(state))))
    assert again == state
    first = decide(state, live_policy(policy, 10), float(now)).record()
    assert decide(again, live_policy(policy, 10), float(now)).record() == first
    json.dumps(first, allow_nan=False)


@pytest.mark.parametrize("policy", ["fifo-skip", "srtf", "las", "sjf", "fair"])
def test_a_large_gang_under_a_stream_of_small_jobs_starts_within_the_bound(policy):
    limit_s = 300.0
    stream = [JobView(f"s{number}", gang(1), 40.0 * number, limit_s=limit_s) for number in range(400)]
    gang_job = JobView("gang", gang(8), 100.0, limit_s=2 * limit_s)
    runtimes = {job.id: limit_s for job in stream} | {"gang": 2 * limit_s}
    state = ClusterState((NodeView("n", 8),), (), settings=SETTINGS)
    outcome = rehearse(
        state, live_policy(policy, 8), runtimes, arrivals=[*stream, gang_job], until_s=12_000.0
    )
    assert outcome.starts_s["gang"] - 100.0 <= SETTINGS.bounded_wait_s + limit_s + 60.0


def test_the_same_submission_twice_is_one_job():
    job = JobView("a", gang(8), 0.0, limit_s=100.0)
    state = ClusterState((NodeView("n", 8),), (job,))
    outcome = rehearse(state, live_policy("fifo", 8), {"a": 50.0}, arrivals=[job, job])
    assert outcome.ends_s == {"a": 50.0}


def test_a_victim_goes_on_where_it_was_stopped():
    low = JobView("low", gang(8), 0.0, limit_s=1000.0)
    high = JobView("high", gang(8), 700.0, job_class=1, limit_s=100.0)
    state = ClusterState((NodeView("n", 8),), ())
    outcome = rehearse(state, live_policy("fair", 8), {"low": 1000.0, "high": 100.0}, arrivals=[low, high])
    assert outcome.ends_s == {"high": 800.0, "low": 1100.0}
    assert outcome.device_s == {("", ""): 8800.0}


def test_shrinking_a_quota_under_load_stops_nobody_until_somebody_is_owed():
    teams = (TeamQuota("x"), TeamQuota("y", guaranteed={"": 8000}))
    jobs = [JobView("r", gang(8), 0.0, team="x", limit_s=5000.0)]
    state = ClusterState((NodeView("n", 8),), (), teams)
    alone = rehearse(state, live_policy("fair", 8), {"r": 5000.0}, arrivals=jobs)
    assert alone.evictions == {}
    owed = [*jobs, JobView("w", gang(8), 1000.0, team="y", limit_s=10.0)]
    outcome = rehearse(state, live_policy("fair", 8), {"r": 5000.0, "w": 10.0}, arrivals=owed)
    assert (outcome.evictions, outcome.starts_s["w"]) == ({"r": 1}, 1000.0)
