"""Lending in the database: the switch, rests that grow, and what studies have had."""

from datetime import timedelta

import pytest
from django.utils import timezone

from cluster.core.queue import Demand
from cluster.core.requests import gang
from cluster.core.roles import Role
from cluster.models import QueueEntry
from cluster.services.queue import enter_queue
from jobs.core.errors import JobMovedOn
from jobs.core.states import JobState
from jobs.models import Job
from journal.models import AuditEntry, Event
from tuning.models import BubbleUse, Lending
from tuning.queries.bubbles import bubbles_of
from tuning.services.bubbles import add_sample, not_lending, rest_lending, switch_lending


@pytest.fixture
def owner(db, demo):
    return demo.person("ada")


@pytest.fixture
def team(owner, demo):
    return demo.team_with(owner, Role.RESEARCHER)


@pytest.fixture
def training(owner, team, demo):
    return demo.training(owner, team)


@pytest.fixture
def study(owner, team, demo):
    return demo.study(owner, team, trials=4)


def sample(**changes):
    values = {
        "board": "/dev/shm/x.board", "epoch": 1, "covers_s": 2.0, "lending": True, "limit": 0.02,
        "decision": {"action": "keep", "reason": "fewer than 20 iterations without guests"},
        "waited_s": 1.0, "lent_s": 0.9, "used_s": 0.6, "leaked_s": 0.01, "utilisation": 0.6, "bubbles": 12,
        "slots": [{"slot": 2, "expected_s": 0.02, "median_s": 0.03, "lent_s": .9, "used_s": 0.6, "seen": 12}],
        "skipped": [{"slot": 2, "rule": "control", "count": 1, "reason": "left alone"}],
        "slowdown": None,
        "guests": [{"name": "g", "run": "c0", "trials": 8, "steps": 50, "step_s": 0.004, "stopped": False}],
    }  # fmt: skip
    return values | changes


def give(study, training, rank=0, exclusive_s=0.5, **changes):
    add_sample(
        study=study,
        board=f"job-{training.pk}-{rank}",
        lender=training.pk,
        rank=rank,
        device=None,
        sample=sample(**changes),
        exclusive_s=exclusive_s,
    )


def test_the_switch_is_recorded_audited_and_idempotent(training) -> None:
    for _ in range(2):
        switch_lending(job_id=training.pk, lending=False, actor="grace", reason="a demonstration")
    assert not_lending([training.pk]) == {str(training.pk)}
    assert Event.objects.filter(stream_id=training.stream, kind="lending.switched").count() == 1
    assert AuditEntry.objects.get(action="job.lending").detail["reason"] == "a demonstration"
    switch_lending(job_id=training.pk, lending=True, actor="grace")
    assert not_lending([training.pk]) == set()


def test_rests_grow_do_not_overlap_and_end_by_themselves_or_by_a_person(training) -> None:
    first = rest_lending(job_id=training.pk, reason="slowdown +4 %")
    assert rest_lending(job_id=training.pk, reason="the other stage says so too").stops == 1
    assert not_lending([training.pk]) == {str(training.pk)}
    length = first.rests_until - timezone.now()
    Lending.objects.update(rests_until=timezone.now() - timedelta(seconds=1))
    assert not_lending([training.pk]) == set()
    second = rest_lending(job_id=training.pk, reason="slowdown +4 %")
    assert second.stops == 2
    assert second.rests_until - timezone.now() > 1.9 * length
    switch_lending(job_id=training.pk, lending=True, actor="grace")
    assert not_lending([training.pk]) == set()
    assert rest_lending(job_id=training.pk, reason="slowdown +4 %").stops == 1


def test_what_a_person_has_stopped_does_not_rest(training) -> None:
    switch_lending(job_id=training.pk, lending=False, actor="grace")
    assert rest_lending(job_id=training.pk, reason="slowdown").rests_until is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": JobState.COMPLETED}, "it is completed"),
        ({"spec": {"lend_bubbles": False}}, "lend_bubbles: false"),
        ({"kind": "study"}, "only training jobs lend"),
    ],
)
def test_there_must_be_something_to_lend(training, changes, words) -> None:
    Job.objects.filter(pk=training.pk).update(**changes)
    with pytest.raises(JobMovedOn, match=words):
        switch_lending(job_id=training.pk, lending=False, actor="grace")


def test_samples_add_up_and_both_jobs_hear_of_them(study, training, owner) -> None:
    give(study, training)
    give(study, training, used_s=0.3)
    give(study, training, rank=1)
    use = BubbleUse.objects.get(study=study, rank=0)
    assert (use.waited_s, round(use.used_s, 6), use.steps, use.watched_s) == (2.0, 0.9, 100, 4.0)
    assert use.slots["2"]["seen"] == 24
    assert use.slots["2"]["skipped"]["control"]["count"] == 2
    for job in (study, training):
        assert Event.objects.filter(stream_id=job.stream, kind="bubble.sample").count() == 3
    found = bubbles_of(training, owner, timezone.now())
    assert found.status == "used"
    assert (found.watched_s, found.device_s) == (4.0, 16.0)  # two ranks at the same time; four devices
    assert round(found.recovered_s, 6) == 1.5
    assert found.devices_worth == 1.5 / 4.0
    assert found.relative == found.devices_worth / 2
    assert found.saving == 1.5 / 16.0


def test_a_measured_slowdown_is_taken_off_what_the_work_is_worth(study, training, owner) -> None:
    slowdown = {"value": 0.01, "low": -0.01, "high": 0.03, "lent": 90, "controls": 20}
    give(study, training, slowdown=slowdown)
    give(study, training, rank=1, slowdown={**slowdown, "value": 0.02})
    found = bubbles_of(training, owner, timezone.now())
    assert found.slowdown["value"] == 0.02
    assert found.extra_s == pytest.approx(0.02 * 8.0)
    assert found.saving == pytest.approx((1.0 - 0.16) / 8.0)


def test_another_layout_means_other_slots_and_the_sums_stay(study, training) -> None:
    give(study, training)
    give(study, training, epoch=2, slots=[], skipped=[])
    use = BubbleUse.objects.get()
    assert use.slots == {}
    assert use.waited_s == 2.0


def test_the_name_of_a_study_is_for_its_team_only(study, training, demo) -> None:
    give(study, training)
    stranger = demo.person("stranger")
    demo.team_with(stranger, Role.ADMIN, slug="elsewhere")
    [stage] = bubbles_of(training, stranger, timezone.now()).stages
    assert stage.study is None


def test_the_queue_knows_whether_a_job_lends(training, team, owner) -> None:
    enter_queue(
        job_id=training.pk, job_kind="training", label="gpt", team=team, owner=owner,
        demand=Demand(gang(1), lends=True), declared={},
    )  # fmt: skip
    for lending in (False, True):
        switch_lending(job_id=training.pk, lending=lending, actor="olga")
        assert QueueEntry.objects.get(pk=training.pk).demand["lends"] is lending
