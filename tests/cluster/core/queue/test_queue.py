"""A queue played step by step on plain values: what holds after every tick, whatever happens in between."""

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.core.decision import ClusterState, NodeView, Settings, decide, state_from_record, state_record
from cluster.core.fairness.quota import TeamQuota
from cluster.core.policies import live_policy
from cluster.core.queue import (
    Demand,
    Entry,
    Held,
    QueueClock,
    changes_of,
    demand_from_json,
    demand_to_json,
    units_of,
)
from cluster.core.requests import TaskShape, gang
from cluster.core.states import AllotmentState, EntryState

HELD, LEAVING, KEPT = AllotmentState.HELD, AllotmentState.LEAVING, AllotmentState.KEPT
RULES = Settings(min_runtime_s=50.0, most_evictions=3, bounded_wait_s=5000.0)


class Queue:
    """The queue's rows in memory: applies what a decision changes, as the coordinator writes it down."""

    def __init__(self, nodes, teams=(), policy="fair", rules=RULES):
        self.nodes, self.teams, self.policy, self.rules = tuple(nodes), tuple(teams), policy, rules
        self.entries: dict[str, Entry] = {}
        self.now, self.rows = 1000.0, 0
        self.waits = {}

    def submit(self, job_id, demand, team="x", **fields):
        self.entries[job_id] = Entry(job_id, team, "u", demand, EntryState.WAITING, self.now, **fields)

    def tick(self):
        units = units_of(list(self.entries.values()), self.now)
        state = ClusterState(self.nodes, tuple(units.views), self.teams, settings=self.rules)
        devices = sum(node.devices for node in self.nodes)
        decision = decide(state, live_policy(self.policy, devices), self.now)
        logged = state_from_record(json.loads(json.dumps(state_record(state))))
        again = decide(logged, live_policy(self.policy, devices), self.now)
        assert again.record() == decision.record()
        changes = changes_of(units, decision)
        self._apply(changes)
        self.waits = changes.waits
        return changes

    def settle(self):
        for _ in range(12):
            if not self.tick().moves:
                return

    def _apply(self, changes):
        gone, leaving, up = set(changes.dropped), set(changes.leaving), set(changes.taken_up)
        for job_id, entry in self.entries.items():
            rows = [row for row in entry.held if row.row not in gone]
            rows = [replace(row, state=LEAVING) if row.row in leaving else row for row in rows]
            rows = [replace(row, state=HELD, since_s=self.now) if row.row in up else row for row in rows]
            for state, new in ((HELD, changes.given), (KEPT, changes.kept)):
                for owner, piece in new:
                    if owner == job_id:
                        self.rows += 1
                        rows.append(Held(self.rows, piece, state, self.now))
            self.entries[job_id] = replace(entry, held=tuple(rows))
        for job_id in changes.started:
            entry = self.entries[job_id]
            self.entries[job_id] = replace(entry, state=EntryState.RUNNING, started_s=self.now)
        for job_id in changes.stopped:
            self.entries[job_id] = replace(self.entries[job_id], state=EntryState.STOPPING)

    def leave(self, job_id):
        """A job that was told to has left everything, or an elastic one what it must."""
        entry = self.entries[job_id]
        if entry.state is EntryState.STOPPING:
            ran = self.now - (entry.started_s or self.now)
            self.entries[job_id] = replace(
                entry, state=EntryState.WAITING, held=(), started_s=None, executed_s=entry.executed_s + ran
            )
        else:
            rows = tuple(row for row in entry.held if row.state is not LEAVING)
            self.entries[job_id] = replace(entry, held=rows)

    def holds(self, job_id, *states):
        return [row for row in self.entries[job_id].held if row.state in (states or (HELD,))]

    def check(self):
        free = {(n.name, d): 1000 for n in self.nodes for d in range(n.devices)}
        for entry in self.entries.values():
            for row in entry.held:
                if row.state is not KEPT:
                    free[row.slice.node, row.slice.device] -= row.slice.milli
            held = sum(row.slice.milli for row in entry.held if row.state is HELD)
            if entry.state is EntryState.RUNNING and not entry.demand.elastic:
                assert held == entry.demand.milli
            if entry.state is EntryState.WAITING:
                assert held == 0
                assert entry.job_id in self.waits
                assert self.waits[entry.job_id].message
            if entry.state is EntryState.RUNNING and entry.demand.elastic and not entry.demand.borrows:
                assert self.holds(entry.job_id)
        assert min(free.values()) >= 0
        positions = sorted(w.position for w in self.waits.values() if w.position is not None)
        assert positions == list(range(1, len(positions) + 1))
        assert not [w for w in self.waits.values() if "/" in w.job_id or any("/" in a for a in w.ahead)]


def elastic(count=8, milli=1000, **fields):
    return Demand((TaskShape(count, 1, milli),), elastic=True, **fields)


def fixed(count, **fields):
    return Demand(gang(count), **fields)


DEMANDS = st.one_of(
    st.builds(elastic, st.integers(1, 6), job_class=st.integers(0, 1), borrows=st.booleans()),
    st.builds(
        fixed,
        st.integers(0, 5),
        job_class=st.integers(0, 1),
        limit_s=st.none() | st.just(300.0),
        lends=st.booleans(),
    ),
    st.builds(lambda m: Demand((TaskShape(1, 1, m),)), st.sampled_from([250, 500, 700])),
    st.builds(lambda n: Demand((TaskShape(n, 2),), kinds=("old",)), st.integers(1, 2)),
)


@given(st.data(), st.sampled_from(["fair", "fifo", "fifo-skip", "srtf", "las", "backfill"]))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_happens_devices_are_given_once_gangs_whole_and_waits_explained(data, policy):
    nodes = [NodeView("a", 3, "new"), NodeView("b", 2, "old"), NodeView("c", 2, "old")]
    teams = (TeamQuota("x", guaranteed={"new": 2000}), TeamQuota("y", borrow_limit={"new": 2000}))
    queue = Queue(nodes, teams, policy)
    for step in range(data.draw(st.integers(3, 14))):
        queue.now += data.draw(st.sampled_from([0.0, 1.0, 60.0, -30.0]))
        action = data.draw(st.sampled_from(["submit", "submit", "submit", "end", "leave", "drain", "hold"]))
        some = data.draw(st.sampled_from(sorted(queue.entries))) if queue.entries else None
        if action == "submit" or some is None:
            team = data.draw(st.sampled_from(["x", "y"]))
            is_held = data.draw(st.booleans()) and step > 9
            queue.submit(f"j{step:02}", data.draw(DEMANDS), team, is_held=is_held)
        elif action == "end":
            del queue.entries[some]
        elif action == "leave":
            queue.leave(some)
        elif action == "hold":
            entry = queue.entries[some]
            queue.entries[some] = replace(entry, is_held=not entry.is_held)
        else:
            bad = data.draw(st.sampled_from([(), (0,), (0, 1)]))
            how = data.draw(st.sampled_from(["draining", "lost", "unusable"]))
            changed = replace(nodes[1], unusable=bad, **({} if how == "unusable" else {how: bad}))
            queue.nodes = (nodes[0], changed, nodes[2])
        queue.tick()
        queue.check()


def test_elastic_jobs_fill_like_water_and_give_back_a_further_device_at_once():
    queue = Queue([NodeView("n", 4)])
    queue.submit("a", elastic())
    queue.settle()
    assert len(queue.holds("a")) == 4
    queue.submit("b", elastic())
    queue.tick()
    assert (len(queue.holds("a")), len(queue.holds("a", LEAVING)), len(queue.holds("b", KEPT))) == (3, 1, 1)
    assert queue.waits["b"].reason == "preempting"
    queue.leave("a")
    for _ in range(4):
        queue.tick()
        queue.leave("a")
    assert (len(queue.holds("a")), len(queue.holds("b"))) == (2, 2)
    assert not queue.tick().moves
    del queue.entries["a"]
    queue.settle()
    assert len(queue.holds("b")) == 4


def test_a_gang_takes_further_devices_but_never_the_first_one_of_its_equals():
    queue = Queue([NodeView("n", 4)])
    queue.submit("a", elastic())
    queue.settle()
    queue.submit("whole", fixed(4))
    queue.submit("most", fixed(3))
    queue.tick()
    assert queue.waits["whole"].reason == "waiting_for_devices"
    assert len(queue.holds("most", KEPT)) == 3
    queue.leave("a")
    queue.settle()
    assert (len(queue.holds("most")), len(queue.holds("a"))) == (3, 1)


def test_a_higher_class_stops_a_whole_job_which_goes_on_later():
    queue = Queue([NodeView("n", 2)])
    queue.submit("low", elastic(min_runtime_s=0.0))
    queue.settle()
    queue.submit("high", fixed(2, job_class=1))
    assert queue.tick().stopped == {"low": "class"}
    assert queue.entries["low"].state is EntryState.STOPPING
    queue.now += 5
    queue.leave("low")
    queue.settle()
    assert len(queue.holds("high")) == 2
    assert (queue.entries["low"].executed_s, queue.waits["low"].position) == (5.0, 1)
    del queue.entries["high"]
    queue.settle()
    assert len(queue.holds("low")) == 2


def test_draining_one_device_moves_an_elastic_job_and_stops_a_gang():
    node = NodeView("n", 3)
    queue = Queue([node])
    queue.submit("e", elastic(2))
    queue.settle()
    first = queue.holds("e")[0].slice.device
    queue.nodes = (replace(node, unusable=(first,), draining=(first,)),)
    changes = queue.tick()
    assert (changes.stopped, len(changes.leaving)) == ({}, 1)
    queue.settle()
    assert {row.slice.device for row in queue.holds("e")} == {0, 1, 2} - {first}
    gang_queue = Queue([node])
    gang_queue.submit("g", fixed(2))
    gang_queue.settle()
    device = gang_queue.holds("g")[0].slice.device
    gang_queue.nodes = (replace(node, unusable=(device,), draining=(device,)),)
    assert gang_queue.tick().stopped == {"g": "drain"}


def test_devices_kept_for_a_job_that_is_held_meanwhile_are_let_go():
    queue = Queue([NodeView("n", 1)])
    queue.submit("low", elastic(1, min_runtime_s=0.0))
    queue.settle()
    queue.submit("high", fixed(1, job_class=1))
    queue.tick()
    queue.entries["high"] = replace(queue.entries["high"], is_held=True)
    queue.tick()
    assert queue.entries["high"].held == ()
    assert queue.waits["high"].reason == "held"


def test_an_elastic_job_that_needs_less_is_given_no_more():
    queue = Queue([NodeView("n", 4)])
    queue.submit("a", elastic(8, wanted=2))
    queue.settle()
    assert len(queue.holds("a")) == 2


def test_who_is_ahead_counts_jobs_and_not_their_further_devices():
    queue = Queue([NodeView("n", 2)])
    queue.submit("a", elastic())
    queue.settle()
    queue.now += 1
    queue.submit("g1", fixed(2))
    queue.now += 1
    queue.submit("g2", fixed(2))
    queue.tick()
    assert [queue.waits[name].position for name in ("g1", "g2")] == [1, 2]
    assert queue.waits["g2"].ahead == ("g1",)


@pytest.mark.parametrize("demand", [elastic(3, 500, kinds=("a", "b")), fixed(4, deadline_s=5.0, pin="n")])
def test_a_demand_survives_json(demand):
    assert demand_from_json(json.loads(json.dumps(demand_to_json(demand)))) == demand


@given(st.floats(0, 1e9), st.floats(0.01, 1e5), st.floats(0, 2e9))
def test_a_queue_clock_goes_there_and_back(since_s, speed, wall_s):
    clock = QueueClock(since_s, speed)
    assert clock.wall_s(clock.queue_s(wall_s)) == pytest.approx(wall_s, abs=1e-3)
    assert clock.queue_s(since_s + 10) == pytest.approx(since_s + 10 * speed, abs=1e-3)


def test_while_somebody_lends_a_borrower_starts_at_once_and_gets_its_device_in_its_turn():
    queue = Queue([NodeView("a", 2, "new")])
    queue.submit("lender", fixed(2, lends=True))
    queue.settle()
    queue.now += 1
    queue.submit("earlier", elastic(1))
    queue.now += 1
    queue.submit("borrower", elastic(2, borrows=True))
    queue.settle()
    states = {name: entry.state.value for name, entry in queue.entries.items()}
    assert states == {"lender": "running", "earlier": "waiting", "borrower": "running"}
    assert not queue.entries["borrower"].held
    queue.entries.pop("lender")
    queue.now += 1
    queue.settle()
    assert (len(queue.holds("earlier")), len(queue.holds("borrower"))) == (1, 1)
    queue.check()


def test_one_borrower_starts_for_each_job_that_lends_and_the_others_wait():
    queue = Queue([NodeView("a", 2, "new")])
    for name in ("lender", "second"):
        queue.submit(name, fixed(1, lends=True))
    queue.settle()
    for name in ("b0", "b1", "b2", "b3"):
        queue.now += 1
        queue.submit(name, elastic(2, borrows=True), is_held=name == "b0")
    queue.settle()
    running = {name for name, entry in queue.entries.items() if entry.state is EntryState.RUNNING}
    assert running == {"lender", "second", "b1", "b2"}
    queue.check()
    queue.entries.pop("b1")
    queue.settle()
    assert queue.entries["b3"].state is EntryState.RUNNING


def test_where_nobody_lends_a_borrower_waits_like_any_job():
    queue = Queue([NodeView("a", 1, "new")])
    queue.submit("closed", fixed(1))
    queue.now += 1
    queue.submit("borrower", elastic(2, borrows=True))
    queue.settle()
    assert queue.entries["borrower"].state is EntryState.WAITING
    assert queue.waits["borrower"].message
    queue.entries["closed"] = replace(queue.entries["closed"], demand=fixed(1, lends=True))
    queue.settle()
    assert queue.entries["borrower"].state is EntryState.RUNNING
