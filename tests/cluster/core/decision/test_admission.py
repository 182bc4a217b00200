"""What is refused at submission, and which deadline would do."""

import pytest

from cluster.core.decision import ClusterState, JobView, NodeView, Slice
from cluster.core.decision.admission import deadline_answer, refusal
from cluster.core.fairness.quota import TeamQuota
from cluster.core.requests import TaskShape, gang

NODES = (NodeView("a", 4, "v100", memory_bytes=32), NodeView("b", 4, "t4", memory_bytes=16))
TEAMS = (TeamQuota("x", guaranteed={"v100": 2000}, borrow_limit={"v100": 1000, "t4": 4000}), TeamQuota("y"))


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (JobView("j", gang(9), 0.0), "needs 9 devices, capacity 4 devices"),  # gangs do not mix kinds
        (JobView("j", (TaskShape(1, 5),), 0.0, kinds=("v100",)), "needs 5 devices"),
        (JobView("j", gang(1), 0.0, kinds=("h100",)), "the cluster has no h100"),
        (JobView("j", gang(1), 0.0, pin="z"), "no node z"),
        (JobView("j", (TaskShape(1, 1, memory_bytes=33),), 0.0, kinds=("v100",)), "shape"),
        (JobView("j", gang(1), 0.0, team="nobody"), "no team 'nobody'"),
        (JobView("j", gang(4), 0.0, team="x", kinds=("v100",)), "x may never hold more than 3 devices"),
    ],
)
def test_what_can_never_run_is_refused_with_the_numbers(job, said):
    if not job.team:
        job = JobView(**{name: getattr(job, name) for name in JobView.__slots__} | {"team": "y"})
    found = refusal(ClusterState(NODES, (), TEAMS), job)
    assert found is not None
    assert said in found.message


@pytest.mark.parametrize(
    "job",
    [
        JobView("j", gang(4), 0.0, team="y"),
        JobView("j", gang(3), 0.0, team="x", kinds=("v100",)),
        JobView("j", gang(4), 0.0, team="x", kinds=("v100", "t4")),
        JobView("j", gang(0), 0.0, team="x"),
        JobView("j", (TaskShape(1, 1, memory_bytes=32),), 0.0, team="y", kinds=("v100",)),
    ],
)
def test_what_could_run_on_an_idle_cluster_is_let_in(job):
    assert refusal(ClusterState(NODES, (), TEAMS), job) is None


def test_a_drained_cluster_refuses_nobody():
    nodes = tuple(NodeView(node.name, node.devices, node.kind, state="draining") for node in NODES)
    assert refusal(ClusterState(nodes, ()), JobView("j", gang(4), 0.0)) is None


def promised(name: str, devices: int, limit_s: float, deadline_s: float, **fields) -> JobView:
    return JobView(name, gang(devices), 0.0, limit_s=limit_s, deadline_s=deadline_s, **fields)


def test_a_deadline_is_answered_with_the_earliest_one_that_would_do():
    runs = promised("r", 4, 100.0, 200.0, running=True, started_s=0.0,
                    placement=tuple(Slice("n", device) for device in range(4)))  # fmt: skip
    state = ClusterState((NodeView("n", 4),), (runs, promised("w", 4, 50.0, 160.0)))
    answer = deadline_answer(state, promised("new", 4, 30.0, 120.0), now=10.0)
    assert (answer.accepted, answer.earliest_s) == (False, 180.0)
    assert deadline_answer(state, promised("new", 4, 30.0, 180.0), now=10.0).accepted
    # ten seconds fit before the job that waits
    assert deadline_answer(state, promised("new", 4, 10.0, 110.0), now=10.0).accepted


def test_jobs_without_a_deadline_give_way_and_need_no_limit():
    runs = JobView("r", gang(4), 0.0, running=True, started_s=0.0,
                   placement=tuple(Slice("n", device) for device in range(4)))  # fmt: skip
    state = ClusterState((NodeView("n", 4),), (runs,))
    assert deadline_answer(state, promised("new", 4, 30.0, 40.0), now=10.0).accepted
    assert deadline_answer(state, JobView("x", gang(1), 0.0), now=10.0).accepted
    assert not deadline_answer(state, JobView("x", gang(1), 0.0, deadline_s=50.0), now=10.0).accepted


def test_a_promise_that_a_fault_has_broken_binds_nobody_else():
    state = ClusterState((NodeView("n", 4),), (promised("late", 4, 50.0, 20.0),))
    answer = deadline_answer(state, promised("new", 4, 30.0, 35.0), now=10.0)
    assert answer.earliest_s == 40.0
