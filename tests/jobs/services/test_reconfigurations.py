from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from jobs.core.errors import (
    IllegalReconfiguration,
    JobMovedOn,
    MayNotDecide,
    OwnRequest,
    PlanExpired,
    StaleVersion,
)
from jobs.core.states import RECONFIGURATION_MOVES, ReconfigurationState
from jobs.models import Job, Reconfiguration, TrainingRun
from jobs.services import reconfigurations
from journal.models import AuditEntry, OutboxMessage
from journal.queries import events_after

State = ReconfigurationState


@pytest.fixture
def proposed(job, proposal):
    return reconfigurations.propose(job_id=job.pk, proposal=proposal(), by_policy=False)


def kinds(job):
    return [event.kind.removeprefix("reconfiguration.") for event in events_after(job.stream, 0)]


def approve(row, person, **options):
    return reconfigurations.approve(
        reconfiguration_id=row.pk, approver=person, actor=person.get_username(), **options
    )


def test_a_plan_is_proposed_in_the_owners_name_told_and_audited(job, proposed, people):
    assert (proposed.state, proposed.requester, proposed.version) == (State.PROPOSED, people["ada"], 1)
    assert kinds(job) == ["proposed"]
    assert [entry.action for entry in AuditEntry.objects.all()] == ["reconfiguration.propose"]
    assert not OutboxMessage.objects.exists()


def test_the_same_plan_is_proposed_once_and_another_one_supersedes_it(job, proposed, proposal):
    again = reconfigurations.propose(job_id=job.pk, proposal=proposal(), by_policy=False)
    assert again.pk == proposed.pk
    other = reconfigurations.propose(job_id=job.pk, proposal=proposal(2, 6), by_policy=False)
    proposed.refresh_from_db()
    assert (proposed.state, other.state) == (State.SUPERSEDED, State.PROPOSED)
    assert kinds(job) == ["proposed", "superseded", "proposed"]


def test_another_admin_approves_and_the_executor_is_rung(job, proposed, people):
    row = approve(proposed, people["grace"], comment=" go ", seen_version=1)
    assert (row.state, row.approver, row.comment, row.version) == (State.APPROVED, people["grace"], "go", 2)
    message = OutboxMessage.objects.get()
    assert (message.task, message.queue, message.args) == ("recovery.execute", "recovery", [str(row.pk)])
    entry = AuditEntry.objects.last()
    assert (entry.actor, entry.action) == ("grace", "reconfiguration.approve")
    assert entry.detail["plan_digest"] == row.plan_digest


def test_the_policy_approves_at_once_and_nobody_is_the_approver(job, proposal):
    row = reconfigurations.propose(job_id=job.pk, proposal=proposal(), by_policy=True)
    assert (row.state, row.approver, row.by_policy) == (State.APPROVED, None, True)
    assert kinds(job) == ["proposed", "approved"]
    assert OutboxMessage.objects.get().args == [str(row.pk)]


def test_the_requester_approves_only_by_breaking_the_glass_with_a_reason(proposed, people):
    for glass in ("", "   "):
        with pytest.raises(OwnRequest):
            approve(proposed, people["ada"], break_glass=glass)
    row = approve(proposed, people["ada"], break_glass="nobody else is awake")
    assert (row.state, row.break_glass) == (State.APPROVED, "nobody else is awake")
    assert AuditEntry.objects.last().detail["break_glass"] == "nobody else is awake"


def test_the_database_itself_refuses_an_own_approval(proposed, people):
    rows = Reconfiguration.objects.filter(pk=proposed.pk)
    for changes in (
        {"approver": people["ada"], "state": "approved"},
        {"state": "executing"},
        {"state": "lost"},
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            rows.update(**changes)


@pytest.mark.parametrize("decide", [reconfigurations.approve, reconfigurations.reject])
def test_only_an_admin_of_the_team_decides(proposed, people, decide):
    with pytest.raises(MayNotDecide):
        decide(reconfiguration_id=proposed.pk, approver=people["otto"], actor="otto")


@pytest.mark.parametrize("decide", [reconfigurations.approve, reconfigurations.reject])
def test_a_decision_on_an_old_version_is_refused(proposed, people, decide):
    with pytest.raises(StaleVersion):
        decide(reconfiguration_id=proposed.pk, approver=people["grace"], actor="grace", seen_version=2)


def test_an_expired_plan_is_not_approved_and_the_sweep_closes_it_once(job, proposed, people):
    Reconfiguration.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(PlanExpired):
        approve(proposed, people["grace"])
    assert [reconfigurations.expire_due() for _ in range(2)] == [1, 0]
    assert kinds(job) == ["proposed", "expired"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda job: TrainingRun.objects.update(epoch=4), "epoch 4"),
        (lambda job: TrainingRun.objects.update(layout={"replicas": []}), "another layout"),
        (lambda job: Job.objects.update(state="completed"), "it is completed"),
    ],
)
def test_a_plan_for_a_job_that_has_moved_on_is_neither_approved_nor_executed(
    job, proposed, people, change, words
):
    approved = approve(proposed, people["grace"])
    change(job)
    assert reconfigurations.begin(reconfiguration_id=approved.pk) is None
    approved.refresh_from_db()
    assert (approved.state, words in approved.reason) == (State.SUPERSEDED, True)


def test_a_stale_proposal_is_not_approved(job, proposed, people):
    TrainingRun.objects.update(epoch=4)
    with pytest.raises(JobMovedOn):
        approve(proposed, people["grace"])


def test_a_plan_altered_after_its_approval_is_not_executed(job, proposed, people, proposal):
    row = approve(proposed, people["grace"])
    Reconfiguration.objects.update(plan=proposal(1, 7).plan)
    assert reconfigurations.begin(reconfiguration_id=row.pk) is None
    row.refresh_from_db()
    assert row.reason.endswith("not the one that was approved")


def test_an_approved_plan_is_begun_once_done_and_measured(job, proposed, people):
    row = approve(proposed, people["grace"])
    begun = reconfigurations.begin(reconfiguration_id=row.pk)
    assert begun is not None
    assert begun.state == State.EXECUTING
    assert reconfigurations.begin(reconfiguration_id=row.pk) is None
    reconfigurations.execute_done(reconfiguration_id=row.pk, outcome={"pause_s": 0.4})
    reconfigurations.record_outcome(reconfiguration_id=row.pk, measured={"iteration_s": 1.6})
    row.refresh_from_db()
    assert (row.state, row.outcome) == (State.EXECUTED, {"pause_s": 0.4, "iteration_s": 1.6})
    assert kinds(job) == ["proposed", "approved", "executing", "executed", "measured"]


def test_every_move_that_is_not_in_the_table_is_refused(job, proposed, people):
    for state in State:
        # A state that needs an approver has one.
        Reconfiguration.objects.update(state=state, approver=people["grace"])
        for move in (reconfigurations.approve, reconfigurations.reject):
            target = State.APPROVED if move is reconfigurations.approve else State.REJECTED
            if target not in RECONFIGURATION_MOVES[state]:
                with pytest.raises(IllegalReconfiguration):
                    move(reconfiguration_id=proposed.pk, approver=people["grace"], actor="grace")
        if State.EXECUTED not in RECONFIGURATION_MOVES[state]:
            with pytest.raises(IllegalReconfiguration):
                reconfigurations.execute_done(reconfiguration_id=proposed.pk, outcome={})
