"""Who gives way to whom, and what is lost by it: nothing."""

from datetime import timedelta

import pytest

from cluster.core.bodies import read_quota
from cluster.models import (
    Coordinator,
    Device,
    QueueEntry,
)
from cluster.services.devices import move_device
from cluster.services.quotas import set_quota
from jobs.services.coordination import coordinate
from jobs.services.grants import gave_back, grant_of, want


def test_the_guaranteed_team_takes_lent_devices_back_and_the_victim_goes_on_where_it_was(
    rehearsal, people, clock, state, check_books
):
    set_quota(
        team_id=people["blue"][0].pk,
        body=read_quota({"quotas": [{"kind": "a100", "guaranteed": 4}]}),
        actor="root",
    )
    guest = rehearsal(1000, devices=8)
    coordinate()
    clock.go(30)
    owner = rehearsal(100, team="blue", devices=4)
    coordinate()
    assert [state(guest), state(owner)] == ["running", "queued"]  # the guest has its minimum run time
    clock.go(31)
    coordinate()
    assert [state(guest), state(owner)] == ["queued", "running"]
    entry = QueueEntry.objects.get(pk=guest.pk)
    assert (entry.evictions, entry.executed_s) == (1, pytest.approx(61, abs=1))
    check_books()
    clock.go(101)
    coordinate()
    assert state(owner) == "completed"
    clock.go(950)
    coordinate()
    assert state(guest) == "completed"
    assert guest.ended_at - guest.started_at >= timedelta(seconds=1000)


def test_lowering_a_quota_under_load_stops_nobody_until_somebody_is_owed(
    rehearsal, people, clock, state, check_books
):
    jobs = [rehearsal(1000, devices=4), rehearsal(1000, devices=4)]
    coordinate()
    clock.go(120)
    for team, devices in (("red", 0), ("blue", 8)):
        quota = read_quota({"quotas": [{"kind": "a100", "guaranteed": devices}]})
        set_quota(team_id=people[team][0].pk, body=quota, actor="root")
        coordinate()
    assert [state(job) for job in jobs] == ["running", "running"]
    owed = rehearsal(10, team="blue", devices=2)
    coordinate()
    assert state(owed) == "running"
    assert sorted(state(job) for job in jobs) == ["queued", "running"]
    check_books()


def test_a_higher_class_of_an_elastic_job_shrinks_others_to_their_first_device(
    rehearsal, clock, state, held, check_books
):
    low = rehearsal(10_000, devices=8, elastic=True)
    coordinate()
    coordinate()
    assert held(low) == [8000]
    high = rehearsal(100, team="blue", devices=6, **{"class": 1})
    coordinate()
    assert (state(high), held(low, high)) == ("running", [2000, 6000])
    check_books()


def test_an_elastic_job_that_wants_less_gives_back_the_rest(rehearsal, held):
    job = rehearsal(10_000, devices=8, elastic=True)
    coordinate()
    want(job.pk, devices=3)
    grant = grant_of(job.pk)
    assert (len(grant.devices), len(grant.leaving), grant.stopping) == (3, 5, False)
    gave_back(job.pk, grant.leaving)
    coordinate()
    assert held(job) == [3000]


def test_a_drained_device_is_left_and_a_lost_one_too(rehearsal, clock, state, check_books):
    job = rehearsal(1000, devices=4, pin="n-0")
    coordinate()
    device = Device.objects.filter(node__name="n-0").first()
    move_device(device_id=device.pk, to="draining", actor="root", reason="fan")
    coordinate()
    assert state(job) == "queued"
    entry = QueueEntry.objects.get(pk=job.pk)
    assert (entry.evictions, entry.reason) == (0, "pin_busy")
    assert Coordinator.objects.get(pk="rehearsal").devices["a100"]["drained"] == 1000
    move_device(device_id=device.pk, to="healthy", actor="root")
    coordinate()
    assert state(job) == "running"
    check_books()
