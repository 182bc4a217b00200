"""One tick: what starts, what stops, and why the rest waits. Many inputs come from public bug reports."""

import pytest

from cluster.core.decision import ClusterState, JobView, NodeView, Reservation, Settings, Slice, decide
from cluster.core.fairness.quota import TeamQuota
from cluster.core.policies import policy_by_name
from cluster.core.requests import TaskShape, gang

NOW = 10_000.0


def held(node: str, first: int, count: int) -> tuple[Slice, ...]:
    return tuple(Slice(node, first + number) for number in range(count))


def running(name: str, node: str, first: int, count: int, **fields) -> JobView:
    defaults = {"submitted_s": 0.0, "started_s": 0.0, "limit_s": 50_000.0}
    return JobView(
        name, gang(count), running=True, placement=held(node, first, count), **{**defaults, **fields}
    )


def waiting(name: str, devices: int, **fields) -> JobView:
    return JobView(name, gang(devices), **{"submitted_s": NOW - 10, **fields})


def decision(nodes, jobs, policy="fair", now=NOW, **state):
    devices = sum(node.devices for node in nodes)
    return decide(ClusterState(tuple(nodes), tuple(jobs), **state), policy_by_name(policy, devices), now)


def started(found) -> list[str]:
    return [start.job_id for start in found.starts]


ONE_NODE = [NodeView("n0", 8)]


def test_a_gang_of_master_and_workers_beyond_the_cluster_never_starts_in_part():
    found = decision(ONE_NODE, [JobView("a", (TaskShape(1, 8), TaskShape(1, 8)), 0.0)])
    assert not found.starts
    assert found.waits["a"].reason == "unsatisfiable"
    assert found.waits["a"].message == "needs 16 devices, capacity 8 devices"


@pytest.mark.parametrize(
    "policy", ["fair", "fifo", "fifo-skip", "srtf", "backfill", "conservative", "deadline"]
)
def test_of_two_gangs_in_one_tick_exactly_one_starts_whole(policy):
    jobs = [JobView(name, (TaskShape(3, 1),), 0.0) for name in "ab"]
    found = decision([NodeView("n0", 4)], jobs, policy)
    assert [(start.job_id, len(start.slices)) for start in found.starts] == [("a", 3)]
    assert found.waits["b"].reason == "waiting_for_devices"


def test_a_borrower_does_not_take_from_another_borrower():
    # kueue #3779: A holds 250 of its 150, BE 50 of its 0; A asks for 50 more.
    nodes = [NodeView(f"n{number}", 100) for number in range(3)]
    teams = (
        TeamQuota("A", guaranteed={"": 150_000}),
        TeamQuota("B", guaranteed={"": 150_000}),
        TeamQuota("BE"),
    )
    big = JobView("A1", gang(250), 0.0, team="A", running=True, started_s=0.0,
                  placement=held("n0", 0, 100) + held("n1", 0, 100) + held("n2", 0, 50))  # fmt: skip
    jobs = [big, running("BE1", "n2", 50, 50, team="BE"), waiting("A2", 50, team="A")]
    found = decision(nodes, jobs, teams=teams)
    assert (found.starts, found.preemptions) == ((), ())
    assert found.waits["A2"].reason == "waiting_for_devices"
    # B, who is owed 150, takes 50 back from whoever loses least.
    found = decision(nodes, [*jobs, waiting("B1", 50, team="B")], teams=teams)
    assert [(entry.job_id, entry.cause) for entry in found.preemptions] == [("BE1", "guarantee")]
    assert found.starts[0].after == ("BE1",)


def test_a_head_of_line_blocks_only_its_own_device_kind():
    # kueue #8309
    nodes = [NodeView("x", 16, "b300"), NodeView("y", 40, "b200")]
    jobs = [running("r", "x", 0, 16), waiting("head", 8, kinds=("b300",), submitted_s=1.0)]
    jobs += [waiting(f"q{number}", 8, kinds=("b200",), submitted_s=2.0) for number in range(3)]
    found = decision(nodes, jobs, "fifo")
    assert sorted(started(found)) == ["q0", "q1", "q2"]
    assert found.waits["head"].reason == "waiting_for_devices"


def test_a_job_without_devices_starts_whatever_its_quota():
    # kueue #8079
    found = decision(
        ONE_NODE, [running("r", "n0", 0, 8), waiting("cpu", 0, team="a")], teams=(TeamQuota("a"),)
    )
    assert started(found) == ["cpu"]
    assert found.starts[0].slices == ()


def test_what_the_cluster_can_no_longer_run_blocks_nobody():
    jobs = [waiting("huge", 24, submitted_s=0.0), waiting("small", 1)]
    found = decision([NodeView("a", 8), NodeView("b", 8)], jobs, "fifo")
    assert started(found) == ["small"]
    assert found.waits["huge"].reason == "unsatisfiable"
    # the node comes back: it starts by itself
    assert "huge" in started(decision([NodeView(name, 8) for name in "abc"], jobs, "fifo"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"held": True}, "held"), ({"pin": "n9"}, "unsatisfiable"), ({"kinds": ("h100",)}, "unsatisfiable")],
)
def test_a_job_set_aside_says_why_and_has_no_position(changes, reason):
    found = decision(ONE_NODE, [waiting("a", 1, **changes)])
    assert (found.waits["a"].reason, found.waits["a"].position, found.starts) == (reason, None, ())


def test_a_held_queue_starts_nothing_and_says_so():
    # kueue #1651
    found = decision(ONE_NODE, [waiting("a", 1)], queue_held="maintenance")
    assert (found.starts, found.waits["a"].message) == ((), "the queue is held: maintenance")


def test_a_higher_class_of_the_same_team_takes_over_after_the_minimum_run_time():
    def outcome(ran_s: float) -> tuple:
        jobs = [running("low", "n0", 0, 8, started_s=NOW - ran_s), waiting("high", 4, job_class=1)]
        return decision(ONE_NODE, jobs).preemptions

    assert outcome(599.0) == ()
    assert [(entry.job_id, entry.cause, entry.for_job) for entry in outcome(600.0)] == [
        ("low", "class", "high")
    ]


def test_a_higher_class_takes_nothing_that_another_team_is_guaranteed():
    teams = (TeamQuota("a", guaranteed={"": 4000}), TeamQuota("b", guaranteed={"": 4000}))
    jobs = [
        running("r", "n0", 0, 4, team="a"),
        running("s", "n0", 4, 4, team="b"),
        waiting("h", 2, team="b", job_class=9),
    ]
    assert [entry.job_id for entry in decision(ONE_NODE, jobs, teams=teams).preemptions] == ["s"]


def test_a_job_stopped_often_enough_is_left_alone():
    jobs = [running("v", "n0", 0, 8, evictions=3), waiting("high", 4, job_class=1)]
    assert decision(ONE_NODE, jobs).preemptions == ()
    assert decision(ONE_NODE, jobs, settings=Settings(most_evictions=4)).preemptions[0].job_id == "v"


def test_as_few_as_possible_are_stopped():
    nodes = [NodeView("n0", 8), NodeView("n1", 8)]
    small = [running(f"s{number}", "n0", number, 1) for number in range(8)]
    jobs = [
        *small,
        running("half", "n1", 0, 4),
        running("other", "n1", 4, 4),
        waiting("high", 4, job_class=1),
    ]
    found = decision(nodes, jobs)
    assert [entry.job_id for entry in found.preemptions] == ["half"]


def test_the_one_that_loses_least_work_is_stopped():
    jobs = [running("old", "n0", 0, 4, started_s=0.0), running("new", "n0", 4, 4, started_s=NOW - 700)]
    found = decision(ONE_NODE, [*jobs, waiting("high", 4, job_class=1)])
    assert [entry.job_id for entry in found.preemptions] == ["new"]


def test_a_job_waits_on_its_kept_devices_until_its_victims_have_left():
    kept = held("n0", 0, 4)
    victim = running("v", "n0", 0, 8, stopping=True)
    job = waiting("p", 4, placement=kept, job_class=1)
    found = decision(ONE_NODE, [victim, job, waiting("other", 1)])
    assert found.waits["p"].reason == "preempting"
    assert not found.starts
    found = decision(ONE_NODE, [job, waiting("other", 1)])
    assert found.starts[0].job_id == "p"
    assert found.starts[0].slices == kept
    assert started(found) == ["p", "other"]


def test_draining_sends_jobs_away_and_places_nobody():
    nodes = [NodeView("n0", 8, state="draining"), NodeView("n1", 8, state="cordoned")]
    jobs = [running("a", "n0", 0, 4), running("b", "n1", 0, 4), waiting("c", 1)]
    found = decision(nodes, jobs)
    assert [(entry.job_id, entry.cause) for entry in found.preemptions] == [("a", "drain")]
    assert not found.starts
    assert found.devices[""] == {"total": 16_000, "used": 8000, "free": 0, "drained": 8000}


@pytest.mark.parametrize("nodes", [[NodeView("n0", 8, state="lost")], [NodeView("n7", 8)]])
def test_a_job_whose_node_is_gone_is_stopped_once(nodes):
    found = decision(nodes, [running("a", "n0", 0, 4)])
    assert [(entry.job_id, entry.cause) for entry in found.preemptions] == [("a", "node_lost")]


def test_a_reservation_keeps_jobs_out_that_would_still_run_when_it_begins():
    reservation = Reservation("event", "", 6000, NOW + 100, NOW + 1000, lendable=False)
    jobs = [
        waiting("long", 4, limit_s=500.0),
        waiting("short", 4, limit_s=50.0),
        waiting("two", 2, limit_s=500.0),
    ]
    found = decision(ONE_NODE, jobs, "fifo-skip", reservations=(reservation,))
    assert started(found) == ["short"]
    assert found.waits["long"].reason == "reserved"


def test_lent_devices_come_back_at_once_whatever_the_minimum_run_time():
    reservation = Reservation("serving", "", 8000, 0.0, 1e9)
    guest = running("guest", "n0", 0, 8, started_s=NOW - 1, evictions=99)
    found = decision(
        ONE_NODE, [guest, waiting("reply", 4, reservation="serving")], reservations=(reservation,)
    )
    assert [(entry.job_id, entry.cause) for entry in found.preemptions] == [("guest", "reservation")]
    assert started(found) == ["reply"]


@pytest.mark.parametrize(("topology", "ok"), [(("required", "rack"), False), (("preferred", "rack"), True)])
def test_a_required_rack_is_one_rack(topology, ok):
    nodes = [NodeView("a", 4, domains={"rack": "r1"}), NodeView("b", 4, domains={"rack": "r2"})]
    job = JobView("j", gang(8), 0.0, topology=topology)
    assert bool(decision(nodes, [job]).starts) == ok
    four = JobView("j", (TaskShape(2, 2),), 0.0, topology=topology)
    busy = [running("r", "a", 0, 1)]
    assert {piece.node for piece in decision(nodes, [*busy, four]).starts[0].slices} == {"b"}


def test_free_devices_that_are_not_together_are_called_fragmented():
    nodes = [NodeView("a", 4), NodeView("b", 4)]
    jobs = [
        running("r", "a", 0, 2, preemptible=False),
        running("s", "b", 0, 2, preemptible=False),
        waiting("w", 4),
    ]
    found = decision(nodes, jobs)
    assert (found.waits["w"].reason, found.waits["w"].numbers["free_milli"]) == ("fragmented", 4000)


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_clock_that_jumps_makes_nothing_negative_and_stops_nobody_too_early(jump_s):
    jobs = [running("r", "n0", 0, 8, started_s=NOW), waiting("w", 4, job_class=1, submitted_s=NOW + 60)]
    found = decision(ONE_NODE, jobs, now=NOW + jump_s)
    assert bool(found.preemptions) == (jump_s > 0)
    wait = found.waits.get("w")
    if wait is not None:
        assert wait.earliest_start_s is None or wait.earliest_start_s >= NOW + jump_s


def test_an_overdue_gang_is_not_passed_for_ever():
    settings = Settings(bounded_wait_s=1000.0)
    jobs = [running(f"r{number}", "n0", number, 1, limit_s=NOW + 100) for number in range(7)]
    jobs += [waiting("gang", 8, submitted_s=0.0), waiting("stream", 1, limit_s=5000.0)]
    found = decision(ONE_NODE, jobs, "fifo-skip", settings=settings)
    assert not found.starts
    assert found.waits["stream"].behind == "gang"
    assert decision(ONE_NODE, jobs, "fifo-skip").starts[0].job_id == "stream"
    brief = [*jobs[:-1], waiting("brief", 1, limit_s=50.0)]
    assert started(decision(ONE_NODE, brief, "fifo-skip", settings=settings)) == ["brief"]


def test_who_is_ahead_are_those_who_want_the_same_devices():
    nodes = [NodeView("x", 1, "a"), NodeView("y", 1, "b")]
    jobs = [running("r", "x", 0, 1), running("s", "y", 0, 1)]
    jobs += [waiting("1", 1, kinds=("a",), submitted_s=1.0), waiting("2", 1, kinds=("b",), submitted_s=2.0)]
    jobs += [waiting("3", 1, kinds=("a",), submitted_s=3.0)]
    found = decision(nodes, jobs, "fifo")
    assert (found.waits["3"].ahead, found.waits["3"].position) == (("1",), 3)


def test_predicted_starts_follow_the_run_times_that_are_believed():
    jobs = [
        running("r", "n0", 0, 8, started_s=NOW - 100, limit_s=1100.0),
        waiting("1", 8, limit_s=2000.0, submitted_s=1.0),
        waiting("2", 8, submitted_s=2.0, expected_s=(5.0, 6.0, 7.0)),
        waiting("3", 8, submitted_s=3.0),
    ]
    waits = decision(ONE_NODE, jobs, "fifo").waits
    first, second, third = (waits[name] for name in "123")
    assert (first.earliest_start_s, first.predicted_start_s, first.latest_start_s) == (
        NOW + 100,
        NOW + 500,
        NOW + 1000,
    )
    assert second.latest_start_s == NOW + 3000
    assert third.latest_start_s == NOW + 3007


def test_nobody_knows_when_a_job_without_a_limit_ends():
    found = decision(ONE_NODE, [running("r", "n0", 0, 8, limit_s=None), waiting("w", 8)], "fifo")
    assert found.waits["w"].latest_start_s is None


def test_a_deadline_that_becomes_tight_goes_first():
    jobs = [running("r", "n0", 0, 7), waiting("early", 1, submitted_s=0.0)]
    jobs += [waiting("tight", 1, deadline_s=NOW + 700, limit_s=600.0)]
    assert started(decision(ONE_NODE, jobs)) == ["tight"]


def test_the_owner_with_less_recent_usage_goes_first():
    jobs = [running("r", "n0", 0, 7, team="x", user="x")]
    jobs += [waiting("1", 1, team="t", user="busy", submitted_s=1.0), waiting("2", 1, team="t", user="idle")]
    assert started(decision(ONE_NODE, jobs, usage={"t/busy": 900.0, "t/idle": 10.0})) == ["2"]
