"""Rehearsal jobs from their start to their end, on a clock that the test moves."""

from datetime import timedelta

import pytest

from cluster.core.bodies import read_rehearsal
from cluster.core.states import ClusterName
from cluster.models import (
    Allotment,
    DayUsage,
    FairUsage,
    QueueEntry,
)
from cluster.services.queue import free_queue, hold_entry, hold_queue
from cluster.services.rehearsal_cluster import load_rehearsal, remove_rehearsal
from jobs.core.body import parse_body
from jobs.core.errors import InvalidSpec
from jobs.services.coordination import coordinate
from jobs.services.lifecycle import cancel_job, resume_job
from jobs.services.submission import submit_job


def test_jobs_start_in_order_end_in_time_and_say_why_they_wait(rehearsal, clock, state, check_books):
    first, second = rehearsal(100, devices=6, kind="a100"), rehearsal(50, devices=6)
    coordinate()
    assert [state(first), state(second)] == ["running", "queued"]
    entry = QueueEntry.objects.get(pk=second.pk)
    assert (entry.position, entry.reason) == (1, "waiting_for_devices")
    assert entry.message == "needs 6 devices, 2 devices free"
    assert abs(entry.predicted_start_at - clock.at - timedelta(seconds=100)) < timedelta(seconds=1)
    assert (second.substate, second.reason) == ("waiting for devices", entry.message)
    clock.go(101)
    coordinate()
    assert [state(first), state(second)] == ["completed", "running"]
    check_books()
    usage = DayUsage.objects.get(is_simulated=True, kind="a100")
    assert usage.device_s == pytest.approx(600, abs=1)
    assert usage.borrowed_device_s == pytest.approx(600, abs=1)


def test_two_shares_of_a_device_fit_and_a_third_waits(rehearsal, state, held, check_books):
    jobs = [rehearsal(10, milli=milli, pin="n-0") for milli in (100, 900, 900, 900, 900, 900)]
    coordinate()
    assert [state(job) for job in jobs] == ["running"] * 5 + ["queued"]
    assert held(*jobs) == [100, 900, 900, 900, 900, 0]
    check_books()


def test_a_held_queue_starts_nothing_and_a_held_job_waits_alone(rehearsal, state):
    hold_queue(name=ClusterName.REHEARSAL, actor="root", reason="maintenance")
    job, other = rehearsal(10), rehearsal(10)
    coordinate()
    assert [state(job), job.reason] == ["queued", "the queue is held: maintenance"]
    free_queue(name=ClusterName.REHEARSAL, actor="root")
    hold_entry(job_id=job.pk, actor="root", reason="ask me first", held=True)
    coordinate()
    assert [state(job), state(other)] == ["queued", "running"]
    assert job.substate == "held"
    hold_entry(job_id=job.pk, actor="root", reason="", held=False)
    coordinate()
    assert state(job) == "running"


def test_a_cancelled_job_gives_everything_back_and_a_resumed_one_keeps_what_it_asked_for(
    rehearsal, clock, state, held
):
    running, waiting = rehearsal(1000, devices=8), rehearsal(10, devices=5, kind="a100")
    coordinate()
    cancel_job(job_id=waiting.pk, actor="me")
    cancel_job(job_id=running.pk, actor="me")
    coordinate()
    assert [state(running), state(waiting)] == ["cancelled", "cancelled"]
    assert not Allotment.objects.exists()
    resume_job(job_id=waiting.pk, actor="me")
    coordinate()
    assert (state(waiting), held(waiting)) == ("running", [5000])


def test_a_clock_that_runs_faster_ends_jobs_sooner_and_counts_simulated_time(people, clock, state, nodes):
    body = {"nodes": nodes, "clock_speed": 3600}
    load_rehearsal(body=read_rehearsal(body), actor="root")
    team, user = people["red"]
    job = submit_job(
        body=parse_body({"kind": "rehearsal", "spec": {"duration_s": 7200, "devices": 8}}),
        team=team, owner=user, actor="red",
    )  # fmt: skip
    coordinate()
    clock.go(1)
    coordinate()
    assert state(job) == "running"
    clock.go(1.1)
    coordinate()
    assert state(job) == "completed"
    assert DayUsage.objects.get().device_s == pytest.approx(8 * 7200)


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_clock_jump_loses_no_job_and_makes_nothing_negative(rehearsal, clock, jump_s, state, check_books):
    jobs = [rehearsal(10_000, devices=8), rehearsal(10, devices=8, **{"class": 0})]
    coordinate()
    clock.go(jump_s)
    coordinate()
    check_books()
    assert [state(job) for job in jobs] == ["running", "queued"]
    assert not FairUsage.objects.filter(device_s__lt=0).exists()
    assert not DayUsage.objects.filter(device_s__lt=0).exists()


def test_a_rehearsal_cluster_in_use_is_not_replaced_and_goes_without_a_trace(rehearsal):
    job = rehearsal(10)
    from cluster.core.errors import RehearsalBusy

    with pytest.raises(RehearsalBusy, match="1 rehearsal job waits or runs"):
        remove_rehearsal(actor="root")
    cancel_job(job_id=job.pk, actor="me")
    remove_rehearsal(actor="root")
    with pytest.raises(InvalidSpec, match="no rehearsal cluster"):
        rehearsal(10)
