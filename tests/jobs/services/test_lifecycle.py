import pytest

from jobs.core.body import parse_body
from jobs.core.errors import IllegalMove, InvalidSpec, StaleVersion
from jobs.core.states import JobState
from jobs.models import Job
from jobs.services.lifecycle import cancel_job, move_job, resume_job
from jobs.services.submission import submit_job
from journal.models import AuditEntry, Event, OutboxMessage
from journal.queries import events_after


@pytest.fixture
def submit(team, researcher, workload):
    def submit(**spec):
        body = parse_body({"kind": "study", "name": "sweep", "spec": {"workload": "tiny", **spec}})
        return submit_job(body=body, team=team, owner=researcher, actor="ada")

    return submit


def test_a_submitted_study_is_queued_told_audited_and_rung_for(submit):
    job = submit(trials=7)
    assert (job.state, job.spec["trials"], job.spec["epochs"]) == (JobState.QUEUED, 7, 4)
    assert job.study.trials_total == 7
    assert [e.kind for e in events_after(job.stream, 0)] == ["job.state"]
    assert AuditEntry.objects.get().action == "job.submit"
    assert OutboxMessage.objects.get().task == "cluster.tick"


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        ({"workload": "unknown"}, "/spec/workload"),
        ({"trials": 0}, "/spec/trials"),
        ({"trials": "many"}, "/spec/trials"),
        ({"epcohs": 3}, "/spec/epcohs"),
        ({"space": {"lr": {"type": "loguniform", "low": 0, "high": 1}}}, "/spec/space/lr/low"),
        ({"space": {"batch_size": {"type": "choice", "values": []}}}, "/spec/space/batch_size/values"),
        ({"space": {"momentum": {"type": "uniform", "low": 0, "high": 1}}}, "/spec/space/momentum"),
        ({"scheduler": {"name": "asha", "reduction": 1}}, "/spec/scheduler/reduction"),
    ],
)
def test_a_wrong_spec_is_refused_with_the_field_named_and_nothing_written(submit, spec, pointer):
    with pytest.raises(InvalidSpec) as caught:
        submit(**spec)
    assert pointer in [found for found, _ in caught.value.faults]
    assert not Job.objects.exists()
    assert not Event.objects.exists()


def test_a_queued_job_is_cancelled_at_once(submit):
    job = cancel_job(job_id=submit().pk, actor="ada")
    assert (job.state, job.reason) == (JobState.CANCELLED, "cancelled by ada")


def test_a_running_job_is_asked_to_stop_and_stays_running_until_its_driver_lets_go(submit):
    job = submit()
    move_job(job, JobState.RUNNING)
    job = cancel_job(job_id=job.pk, actor="ada")
    assert (job.state, job.substate) == (JobState.RUNNING, "cancelling")
    assert job.cancel_asked_at is not None


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
def test_an_ended_job_cannot_be_cancelled(submit, state):
    job = submit()
    Job.objects.filter(pk=job.pk).update(state=state)
    with pytest.raises(IllegalMove, match=f"a {state} job cannot become cancelled"):
        cancel_job(job_id=job.pk, actor="ada")


def test_a_cancelled_job_can_be_resumed_and_a_completed_one_cannot(submit):
    job = cancel_job(job_id=submit().pk, actor="ada")
    assert resume_job(job_id=job.pk, actor="ada").state == JobState.QUEUED
    Job.objects.filter(pk=job.pk).update(state=JobState.COMPLETED)
    with pytest.raises(IllegalMove):
        resume_job(job_id=job.pk, actor="ada")


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING])
def test_a_job_that_has_not_ended_cannot_be_resumed(submit, state):
    job = submit()
    Job.objects.filter(pk=job.pk).update(state=state)
    with pytest.raises(IllegalMove):
        resume_job(job_id=job.pk, actor="ada")


def test_a_decision_on_an_old_version_is_refused(submit):
    job = submit()
    move_job(job, JobState.RUNNING)
    with pytest.raises(StaleVersion):
        cancel_job(job_id=job.pk, actor="ada", seen_version=job.version - 1)
