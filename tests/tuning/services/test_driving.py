"""A study's turns in the database: replay, fencing, exactly-once events."""

import time

import pytest

from cluster.core.errors import LeaseLost
from cluster.services.leases import release_all
from jobs.models import Job
from jobs.services.coordination import coordinate, jobs_to_wake
from jobs.services.lifecycle import cancel_job
from journal.queries import events_after
from tuning.core.study.actions import Finish, StartContainer
from tuning.core.study.events import ContainerEnded, Cut, DevicesChanged, Reported, RunLost
from tuning.models import Container, Study, StudyStep, Trial
from tuning.services import driving as driving_module
from tuning.services.driving import note, turn_written, write_turn

DEVICE = "node/cpu:0"


def turn(driving, *events, now_s=1.0, free=(DEVICE,)):
    """Take one turn as the driver does; return the actions."""
    for event in events:
        note(driving, event.to_json())
        driving.brain.apply(event)
    actions = driving.brain.decide(now_s, list(free))
    note(driving, {"decide": now_s, "free": list(free)})
    finish = next((action for action in actions if isinstance(action, Finish)), None)
    write_turn(driving, elapsed_s=now_s, labels={}, finish=finish)
    turn_written(driving)
    return actions


def run_one(driving, action, *metrics, at_s):
    """Report every epoch of a started container and its end."""
    numbers = [member.trial for member in action.members]
    reports = [
        Reported(
            action.run, epoch, {n: {"accuracy": value} for n in numbers}, dict.fromkeys(numbers, 0.5 * epoch)
        )
        for epoch, value in enumerate(metrics, start=1)
    ]
    return turn(driving, *reports, ContainerEnded(action.run, at_s, "finished", len(metrics)), now_s=at_s)


def started(actions):
    return next(action for action in actions if isinstance(action, StartContainer))


def finish_study(driving, actions, at_s=2.0):
    while not driving.brain.finished:
        at_s += 1
        actions = run_one(driving, started(actions), 0.5, 0.1 * at_s, at_s=at_s)


def test_a_study_is_driven_to_its_end(take, study_job):
    driving = take("a")
    finish_study(driving, turn(driving, DevicesChanged((DEVICE,))))
    job = Job.objects.get(pk=study_job.pk)
    assert (job.state, job.summary["trials"]) == ("completed", {"completed": 3})
    rows = Trial.objects.filter(job=job).values_list("number", "state", "epochs", "device_seconds")
    assert list(rows) == [(n, "completed", 2, 1.0) for n in range(3)]
    kinds = [e.kind for e in events_after(job.stream, 0)]
    told = ("trial.started", "trial.finished", "container.started", "container.ended")
    assert [kinds.count(kind) for kind in told] == [3, 3, 3, 3]
    assert Study.objects.get(pk=job.pk).best_metric == pytest.approx(0.5)


def test_another_driver_rebuilds_the_very_same_study(take):
    first = take("a")
    actions = turn(first, DevicesChanged((DEVICE,)))
    run_one(first, started(actions), 0.2, 0.3, at_s=3.0)
    release_all("a")
    second = take("b")
    assert second.brain.snapshot() == first.brain.snapshot()


def test_another_driver_draws_the_very_same_configurations(take, study_job):
    turn(take("a"), DevicesChanged((DEVICE,)))
    drawn = dict(Trial.objects.filter(job=study_job).values_list("number", "config"))
    release_all("a")
    second = take("b")
    assert {trial.number: trial.config for trial in second.brain.trials} == drawn


def test_a_snapshot_replaces_the_steps_before_it(take, monkeypatch, study_job):
    monkeypatch.setattr(driving_module, "STEPS_PER_SNAPSHOT", 3)
    first = take("a")
    actions = turn(first, DevicesChanged((DEVICE,)))
    run_one(first, started(actions), 0.2, 0.3, at_s=3.0)
    assert StudyStep.objects.filter(job=study_job).count() < 3
    release_all("a")
    assert take("b").brain.snapshot() == first.brain.snapshot()


def test_what_ran_under_a_lost_driver_starts_again_and_every_trial_finishes_once(take, study_job):
    first = take("a")
    run = started(turn(first, DevicesChanged((DEVICE,)))).run
    release_all("a")
    second = take("b")
    finish_study(second, turn(second, RunLost(run, 2.0, "its driver was lost")))
    finished = [e.data["trial"] for e in events_after(study_job.stream, 0) if e.kind == "trial.finished"]
    assert sorted(finished) == [0, 1, 2]
    assert Container.objects.filter(job=study_job, outcome="lost").count() == 1


def test_a_driver_whose_lease_is_gone_writes_nothing(take, study_job):
    first = take("a", seconds=0.01)
    time.sleep(0.05)
    take("b")
    with pytest.raises(LeaseLost):
        turn(first, DevicesChanged((DEVICE,)))
    assert not Trial.objects.filter(job=study_job).exists()


def test_a_cancelled_study_keeps_what_it_finished_and_goes_on_when_resumed(take, study_job):
    from jobs.services.lifecycle import resume_job

    driving = take("a")
    actions = turn(driving, DevicesChanged((DEVICE,)))
    actions = run_one(driving, started(actions), 0.2, 0.3, at_s=3.0)
    cancel_job(job_id=study_job.pk, actor="ada")
    run = started(actions).run
    turn(driving, Cut("cancelled"), now_s=4.0)
    turn(driving, ContainerEnded(run, 4.5, "stopped"), now_s=4.5)
    assert Job.objects.get(pk=study_job.pk).state == "cancelled"
    assert list(Trial.objects.filter(job=study_job).values_list("state", flat=True)) == [
        "completed",
        "cut",
        "cut",
    ]
    release_all("a")
    resume_job(job_id=study_job.pk, actor="ada")
    again = take("b")
    finish_study(again, turn(again, DevicesChanged((DEVICE,)), now_s=5.0), at_s=6.0)
    assert Job.objects.get(pk=study_job.pk).state == "completed"
    assert set(Trial.objects.filter(job=study_job).values_list("state", flat=True)) == {"completed"}
    finished = [e.data["trial"] for e in events_after(study_job.stream, 0) if e.kind == "trial.finished"]
    assert sorted(finished) == [0, 1, 2]


def test_studies_without_a_living_driver_are_rung_for(take, study_job):
    assert jobs_to_wake(silent_s=0) == []  # the queue has given it nothing yet
    coordinate()
    assert jobs_to_wake(silent_s=0) == [study_job]
    take("a")
    assert jobs_to_wake(silent_s=0) == []
    release_all("a")
    assert jobs_to_wake(silent_s=0) == [study_job]
    assert jobs_to_wake(silent_s=600) == []
