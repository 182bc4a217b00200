"""The policy of deadlines live: what is promised comes first, whatever else the rules say."""

from cluster.core.decision import ClusterState, JobView, NodeView, Settings, Slice, decide
from cluster.core.decision.admission import deadline_answer
from cluster.core.policies import live_policy
from cluster.core.requests import gang

NODES = (NodeView("n", 4),)
RULES = Settings(min_runtime_s=600.0, most_evictions=0)


def promised(name, devices=4, limit_s=100.0, deadline_s=1000.0, **fields):
    return JobView(name, gang(devices), 0.0, limit_s=limit_s, deadline_s=deadline_s, **fields)


def running(name, first, devices, **fields):
    placement = tuple(Slice("n", first + number) for number in range(devices))
    return JobView(name, gang(devices), 0.0, running=True, started_s=0.0, placement=placement, **fields)


def found(*jobs, now=10.0):
    return decide(ClusterState(NODES, jobs, settings=RULES), live_policy("deadline", 4), now)


def test_everybody_gives_way_to_a_promise_however_short_they_ran_and_of_whatever_class():
    decision = found(running("a", 0, 2, job_class=9), running("b", 2, 2), promised("p"))
    assert sorted((entry.job_id, entry.cause) for entry in decision.preemptions) == [
        ("a", "deadline"),
        ("b", "deadline"),
    ]
    assert [(start.job_id, sorted(start.after)) for start in decision.starts] == [("p", ["a", "b"])]


def test_no_promise_gives_way_to_another():
    holder = running("first", 0, 4, limit_s=500.0, deadline_s=600.0)
    decision = found(holder, promised("second", limit_s=100.0, deadline_s=700.0))
    assert (decision.starts, decision.preemptions) == ((), ())


def test_promised_jobs_start_in_the_order_of_their_deadlines_others_take_what_is_left():
    holder = running("holder", 0, 2, limit_s=500.0, deadline_s=600.0)
    jobs = [
        holder,
        promised("large", devices=4, deadline_s=700.0),
        promised("small", devices=1, deadline_s=900.0),
        JobView("other", gang(1), 0.0, limit_s=5000.0),
    ]
    decision = found(*jobs)
    assert [start.job_id for start in decision.starts] == ["other"]
    assert decision.waits["small"].behind == "large"


def test_a_deadline_that_cannot_be_kept_any_more_binds_nobody():
    late = promised("late", devices=4, limit_s=900.0, deadline_s=500.0)
    state = ClusterState(NODES, (running("a", 0, 4, limit_s=100.0), late), settings=RULES)
    assert decide(state, live_policy("deadline", 4), 10.0).preemptions == ()
    answer = deadline_answer(state, promised("new", limit_s=100.0, deadline_s=150.0), 10.0)
    assert answer.accepted


def test_a_known_run_time_stands_in_for_a_limit():
    known = JobView("known", gang(4), 0.0, deadline_s=150.0, expected_s=(100.0, 100.0, 100.0))
    state = ClusterState(NODES, (known,), settings=RULES)
    assert deadline_answer(ClusterState(NODES, (), settings=RULES), known, 10.0).accepted
    refused = deadline_answer(state, promised("new", limit_s=100.0, deadline_s=155.0), 10.0)
    assert (refused.accepted, refused.earliest_s) == (False, 210.0)
