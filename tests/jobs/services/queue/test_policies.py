"""Every policy decides on the live queue, and what is particular to some of them."""

import pytest

from cluster.core.bodies import read_policy, read_quota, read_rehearsal
from cluster.core.policies import LIVE
from cluster.core.states import ClusterName
from cluster.models import Coordinator, DecisionRecord, QueueEntry
from cluster.services import coordinator as ticking
from cluster.services.quotas import set_policy, set_quota
from cluster.services.rehearsal_cluster import load_rehearsal
from jobs.core.errors import InvalidSpec
from jobs.models import Job
from jobs.services.coordination import coordinate

NODES = [
    {"name": "new", "count": 2, "devices": 4, "kind": "a100"},
    {"name": "old", "devices": 4, "kind": "v100"},
]
# Whoever is faster where, shares, is elastic or has a deadline: something for every policy to weigh.
MIX = [
    {"duration_s": 200, "devices": 8, "kind": "a100", "limit_s": 400},
    {"duration_s": 90, "devices": 2, "speeds": {"a100": 3, "v100": 1}, "keeps": 0.8, "limit_s": 400},
    {"duration_s": 60, "devices": 2, "keeps": 0.7, "limit_s": 90},
    {"duration_s": 150, "devices": 6, "elastic": True, "speedup": [1, 1.8, 2.4, 2.7]},
    {"duration_s": 40, "devices": 1, "milli": 500, "limit_s": 40},
    {"duration_s": 30, "devices": 4, "deadline": 3000, "limit_s": 30, "kind": "a100"},
    {"duration_s": 80, "devices": 2, "class": 1, "kind": ["v100", "a100"]},
    {"duration_s": 20, "devices": 12, "limit_s": 600},
    {"duration_s": 0.5, "devices": 0},
]


@pytest.fixture
def under(rehearsal, clock):
    """Put up two nodes of new devices and one of old ones, under a policy."""

    def under(policy, **rules):
        body = {"nodes": NODES, "policy": policy, "rules": {"min_runtime_s": 20, **rules}}
        load_rehearsal(body=read_rehearsal(body), actor="root")
        return rehearsal

    return under


@pytest.mark.parametrize("policy", LIVE)
def test_every_policy_runs_a_queue_to_its_end_with_books_that_balance(
    policy, under, people, clock, check_books
):
    submit = under(policy)
    quota = read_quota({"quotas": [{"kind": "a100", "guaranteed": 4}]})
    set_quota(team_id=people["blue"][0].pk, body=quota, actor="root")
    for number, spec in enumerate(MIX):
        # Shapes that only fit inside one kind of device cannot be had from two.
        devices = min(spec["devices"], 8)
        submit(team=("red", "blue")[number % 2], **{**spec, "devices": devices})
    for _ in range(100):
        coordinate()
        check_books()
        if not Job.objects.exclude(state="completed").exists():
            break
        clock.go(20)
    left = list(Job.objects.exclude(state="completed").values_list("spec", "state", "reason"))
    assert left == []
    assert set(DecisionRecord.objects.values_list("policy", flat=True)) == {policy}
    assert all(ticking.decide_again(record) for record in DecisionRecord.objects.all())


def test_two_jobs_share_devices_at_the_speed_each_keeps_and_one_has_them_alone_afterwards(
    under, clock, state, held, check_books
):
    submit = under("lucid")
    submit(10_000, devices=8, kind="a100")
    coordinate()
    host, guest = submit(100, devices=4, keeps=0.5), submit(60, devices=4, keeps=0.75)
    coordinate()
    assert held(host, guest) == [2000, 2000]
    check_books()
    clock.go(79)
    coordinate()
    assert state(guest) == "running"
    clock.go(2)  # 60 s of work at three quarters of the speed
    coordinate()
    assert (state(guest), held(host)) == ("completed", [4000])
    entry = QueueEntry.objects.get(pk=host.pk)
    assert entry.done_s == pytest.approx(40.5, abs=0.1)
    assert entry.attained_device_s == pytest.approx(81 * 2, abs=0.1)
    clock.go(60)
    coordinate()
    assert state(host) == "completed"


def test_a_job_that_declares_no_company_has_its_devices_alone(under, held):
    submit = under("lucid")
    jobs = [submit(100, devices=4, pin="old"), submit(100, devices=4, pin="old", keeps=0.9)]
    coordinate()
    assert held(*jobs) == [4000, 0]


def test_who_gains_most_from_the_fast_kind_gets_it_and_others_the_old_one(under, clock, state, held):
    submit = under("gavel")
    plain = submit(1000, devices=4, speeds={"a100": 1.1, "v100": 1})
    fast = [submit(1000, devices=4, speeds={"a100": 10, "v100": 1}) for _ in range(2)]
    coordinate()
    on = {entry.pk: {row.device.kind for row in entry.allotments.all()} for entry in QueueEntry.objects.all()}
    assert on == {plain.pk: {"v100"}, fast[0].pk: {"a100"}, fast[1].pk: {"a100"}}
    clock.go(101)  # ten times as fast
    coordinate()
    assert [state(job) for job in fast] == ["completed", "completed"]


def test_elastic_jobs_get_devices_where_they_gain_most(under, held):
    submit = under("pollux")
    submit(1000, devices=4, pin="old")
    flat = submit(1000, devices=8, elastic=True, kind="a100", speedup=[1, 1.01, 1.02, 1.03])
    steep = submit(1000, devices=8, elastic=True, kind="a100", speedup=[1, 2, 3, 4, 5, 6])
    for _ in range(4):
        coordinate()
    assert held(flat, steep) == [1000, 6000]  # one per cent more is worth no restart


def test_a_promised_deadline_is_kept_against_jobs_that_have_only_begun_and_later_ones_refused(
    under, clock, state, check_books
):
    submit = under("deadline", min_runtime_s=600)
    crowd = [submit(1000, devices=4) for _ in range(3)]
    coordinate()
    urgent = submit(100, devices=8, kind="a100", deadline=130, limit_s=100)
    with pytest.raises(InvalidSpec, match="the earliest that can be promised now"):
        submit(100, devices=8, kind="a100", deadline=150, limit_s=100)
    second = submit(100, devices=8, kind="a100", deadline=230, limit_s=100)
    coordinate()
    assert state(urgent) == "running"
    assert sorted(state(job) for job in crowd) == ["queued", "queued", "running"]
    check_books()
    clock.go(101)
    coordinate()
    assert [state(urgent), state(second)] == ["completed", "running"]
    clock.go(101)
    coordinate()
    assert state(second) == "completed"
    for _ in range(2):
        clock.go(1001)
        coordinate()
    assert [state(job) for job in crowd] == ["completed"] * 3


def test_a_gang_that_must_lie_inside_one_rack_does_or_waits_and_one_that_should_goes_anywhere(
    people, rehearsal, held, state
):
    racks = [
        {"name": f"n{n}", "devices": 2, "kind": "a100", "domains": {"rack": f"r{n // 2}"}} for n in range(4)
    ]
    load_rehearsal(body=read_rehearsal({"nodes": racks}), actor="root")
    rehearsal(1000, devices=2, pin="n0")
    rack = {"level": "rack"}
    inside, waits = rehearsal(1000, devices=3, topology=rack), rehearsal(1000, devices=3, topology=rack)
    coordinate()
    nodes = {row.device.node.name for row in QueueEntry.objects.get(pk=inside.pk).allotments.all()}
    assert nodes == {"n2", "n3"}
    assert state(waits) == "queued"
    anywhere = rehearsal(1000, devices=3, topology={**rack, "mode": "preferred"})
    coordinate()
    assert held(anywhere) == [3000]


def test_themis_stops_a_job_that_is_far_ahead_for_one_that_is_far_behind(under, clock, state):
    submit = under("themis")
    first = submit(10_000, devices=8, kind="a100")
    coordinate()
    clock.go(30)
    behind = submit(10, devices=8, kind="a100")
    clock.go(30)
    coordinate()
    assert [state(first), state(behind)] == ["queued", "running"]


def test_an_operator_changes_the_policy_of_a_queue_that_runs(under, clock, state):
    submit = under("fifo")
    submit(1000, devices=8, kind="a100")
    submit(500, devices=8, kind="a100")
    short = submit(10, devices=8, kind="a100")
    coordinate()
    clock.go(30)
    set_policy(name=ClusterName.REHEARSAL, body=read_policy({"policy": "srtf"}), actor="root")
    coordinate()
    assert Coordinator.objects.get(pk="rehearsal").policy == "srtf"
    assert state(short) == "queued"  # the rule that nobody is stopped before 600 s came with the change
    clock.go(600)
    coordinate()
    assert state(short) == "running"
