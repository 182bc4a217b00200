"""Incidents, what the recovery loop makes of them, and suspect devices."""

from datetime import timedelta

import pytest
from django.db import IntegrityError
from django.utils import timezone

from cluster.core.states import DeviceState
from cluster.models import Device, Membership, Node, Team, User
from jobs.core.body import parse_body
from jobs.models import Injection, Job, Reconfiguration, TrainingRun
from jobs.services.reconfigurations import begin, execute_done
from jobs.services.submission import submit_job
from journal.models import AuditEntry, OutboxMessage
from journal.queries import events_after
from telemetry.core.states import BurnInState, VerdictKind, VerdictState
from telemetry.models import BurnIn, FailureEvent, Verdict
from telemetry.services import quarantine
from telemetry.services.readmission import readmit
from telemetry.services.recovery import answer_verdict, ring_recovery, unanswered
from telemetry.services.verdicts import (
    FoundVerdict,
    clear_verdict,
    clear_verdicts_of,
    open_verdict,
)

PIPELINE = {"stages": [{"layers": 2}, {"layers": 2}]}


@pytest.fixture
def devices(db):
    node = Node.objects.create(name="n0", cpus=4, seen_at=timezone.now())
    rows = [
        Device(node=node, index=i, kind="cpu", memory_bytes=4 << 30, seen_at=timezone.now()) for i in range(4)
    ]
    return Device.objects.bulk_create(rows)


@pytest.fixture
def job(devices):
    """A job that runs on four ranks; rank 1 takes three times as long as the others."""
    team = Team.objects.create(slug="gpt", name="GPT")
    owner = User.objects.create(username="owner")
    Membership.objects.create(team=team, user=owner, role="researcher")
    spec = {"workload": "pydoc-gpt", "layout": {"replicas": [PIPELINE] * 2}, "microbatches": 8, "steps": 5000}
    body = parse_body({"kind": "training", "name": "gpt", "spec": spec})
    job = submit_job(body=body, team=team, owner=owner, actor="owner")
    Job.objects.filter(pk=job.pk).update(state="running")
    TrainingRun.objects.filter(pk=job.pk).update(
        epoch=1,
        step=50,
        iteration_s=0.5,
        devices=[
            {"rank": i, "id": str(d.pk), "label": f"n0/cpu:{i}", "node": "n0", "memory_bytes": 4 << 30}
            for i, d in enumerate(devices)
        ],
        costs={
            "ranks": {
                str(r): {"forward_s": 0.01 * (3 if r == 1 else 1), "backward_s": 0.02 * (3 if r == 1 else 1)}
                for r in range(4)
            }
        },
    )
    return Job.objects.get(pk=job.pk)


def found(kind=VerdictKind.DEVICE_FAIL_SLOW, rank=1, factor=3.0):
    subject = {"rank": rank, "replica": 0, "stage": 1, "node": "n0"}
    return FoundVerdict(kind=kind, subject=subject, confidence=0.99, factor=factor, first_step=40)


def opened(job, devices, **fields):
    return open_verdict(job_id=job.pk, found=found(**fields), device_id=devices[1].pk)[0]


def kinds(job, prefix):
    return [e.kind for e in events_after(job.stream, 0) if e.kind.startswith(prefix)]


def test_an_incident_is_opened_once_told_and_counted_as_a_failure(job, devices):
    first, is_new = open_verdict(job_id=job.pk, found=found(), device_id=devices[1].pk)
    again, is_new_again = open_verdict(job_id=job.pk, found=found(factor=4.0), device_id=devices[1].pk)
    assert (first.pk, is_new, is_new_again) == (again.pk, True, False)
    assert kinds(job, "verdict") == ["verdict.opened"]
    failure = FailureEvent.objects.get()
    assert (failure.kind, failure.device_id) == ("verdict.device_fail_slow", devices[1].pk)
    assert failure.message == (
        "slow device: node n0 replica 0 stage 1 rank 1 on n0/cpu:1, 3.00 times its healthy time, "
        "since step 40"
    )


def test_what_is_merely_worth_knowing_is_no_failure(job):
    noise = FoundVerdict(kind=VerdictKind.WORKLOAD_NOISE, subject={}, confidence=0.6)
    open_verdict(job_id=job.pk, found=noise)
    assert not FailureEvent.objects.exists()


def test_an_incident_is_cleared_once_and_its_second_onset_is_a_second_one(job, devices):
    verdict = opened(job, devices)
    for _ in range(2):
        clear_verdict(verdict_id=verdict.pk, reason="it recovered")
    verdict.refresh_from_db()
    assert (verdict.state, verdict.reason, verdict.version) == ("cleared", "it recovered", 2)
    assert opened(job, devices).pk != verdict.pk
    assert clear_verdicts_of(job_id=job.pk, reason="the end") == 1
    assert kinds(job, "verdict") == ["verdict.opened", "verdict.cleared"] * 2


def test_the_database_keeps_one_open_incident_per_subject_and_known_words(job, devices):
    verdict = opened(job, devices)
    with pytest.raises(IntegrityError):
        Verdict.objects.filter(pk=verdict.pk).update(kind="bad_luck")


def test_a_slow_rank_is_quarantined_and_a_plan_waits_for_an_admin(job, devices):
    verdict = opened(job, devices)
    row = answer_verdict(verdict.pk)
    devices[1].refresh_from_db()
    assert devices[1].state == DeviceState.SUSPECT
    assert row is not None
    # The policy lets a mere move of micro-batches through; the better plan follows from there.
    assert (row.kind, row.state, row.by_policy) == ("rebalance", "approved", True)
    assert row.predicted_iteration_s < row.baseline_iteration_s
    assert answer_verdict(verdict.pk) is None
    assert Reconfiguration.objects.count() == 1
    begin(reconfiguration_id=row.pk)
    TrainingRun.objects.update(epoch=2, layout=row.plan, iteration_s=row.predicted_iteration_s)
    execute_done(reconfiguration_id=row.pk, outcome={})
    better = answer_verdict(verdict.pk)
    assert better is not None
    assert (better.state, better.requester.username) == ("proposed", "owner")
    assert better.predicted_iteration_s < row.predicted_iteration_s
    verdict.refresh_from_db()
    assert verdict.answer == f"{better.kind} proposed; an admin decides"


@pytest.mark.parametrize(("policy", "state"), [("proceed", "approved"), ("approve", "proposed")])
def test_a_dead_rank_is_replanned_at_once_where_the_policy_says_so(job, devices, policy, state):
    job.spec["recovery"]["fail_stop"] = policy
    job.save()
    row = answer_verdict(opened(job, devices, kind=VerdictKind.FAIL_STOP, factor=None).pk)
    assert row is not None
    assert (row.state, row.plan["dead"], row.baseline_iteration_s) == (state, ["r1"], None)
    devices[1].refresh_from_db()
    assert devices[1].state == DeviceState.HEALTHY  # a process died; the device is found out about elsewhere


def test_without_a_better_layout_the_reason_is_written_down_once(job, devices):
    TrainingRun.objects.update(steps_total=51)
    verdict = opened(job, devices)
    for _ in range(2):
        assert answer_verdict(verdict.pk) is None
    verdict.refresh_from_db()
    assert "does not make up for its pause" in verdict.answer
    assert kinds(job, "verdict") == ["verdict.opened", "verdict.answered"]


def test_without_a_better_layout_it_is_looked_at_again_and_again_after_longer_rests(job, devices):
    TrainingRun.objects.update(steps_total=51)
    verdict = opened(job, devices)
    began = timezone.now() - timedelta(hours=1)

    def answered(after_s, ago_s):
        at = timezone.now() - timedelta(seconds=ago_s)
        Verdict.objects.update(opened_at=at - timedelta(seconds=after_s), planned_at=at)
        return unanswered() == [verdict.pk]

    assert not answered(after_s=1, ago_s=9)
    assert answered(after_s=1, ago_s=11)
    assert not answered(after_s=60, ago_s=50)
    assert answered(after_s=60, ago_s=61)
    assert answered(after_s=3600, ago_s=301)
    # Steps that are left make the change worth its pause: the next look proposes it.
    TrainingRun.objects.update(steps_total=100_000)
    assert answer_verdict(verdict.pk) is not None
    Verdict.objects.update(opened_at=began, planned_at=began)
    assert unanswered() == []


def test_a_lost_message_is_found_and_what_no_layout_mends_rings_nobody(job, devices):
    verdict = opened(job, devices)
    ring_recovery(verdict)
    ring_recovery(open_verdict(job_id=job.pk, found=found(kind=VerdictKind.GLOBAL_SLOWDOWN, rank=None))[0])
    assert OutboxMessage.objects.filter(task="recovery.answer").count() == 1
    assert unanswered() == []
    Verdict.objects.update(opened_at=timezone.now() - timedelta(minutes=1))
    assert unanswered() == [verdict.pk]
    Job.objects.update(state="completed")
    assert unanswered() == []


def test_a_suspect_is_measured_once_its_incident_is_over(job, devices):
    verdict = opened(job, devices)
    assert quarantine.suspect_device(device_id=devices[1].pk, reason="slow")
    assert not quarantine.suspect_device(device_id=devices[1].pk, reason="slow")
    now = timezone.now()
    assert quarantine.due_for_burn_in(now) == []
    clear_verdict(verdict_id=verdict.pk, reason="left out")
    assert quarantine.due_for_burn_in(now) == [devices[1]]
    row = quarantine.begin_burn_in(device_id=devices[1].pk)
    assert row is not None
    assert row.verdict_id == verdict.pk
    assert quarantine.begin_burn_in(device_id=devices[1].pk) is None
    assert quarantine.due_for_burn_in(now) == []


@pytest.mark.parametrize(
    ("factor", "state", "device"),
    [(1.02, "passed", "healthy"), (1.4, "failed", "suspect"), (None, "failed", "suspect")],
)
def test_a_device_as_fast_as_its_peers_is_used_again(job, devices, factor, state, device):
    quarantine.suspect_device(device_id=devices[1].pk, reason="slow")
    row = quarantine.begin_burn_in(device_id=devices[1].pk)
    quarantine.end_burn_in(burn_in_id=row.pk, factor=factor, detail={})
    row.refresh_from_db()
    devices[1].refresh_from_db()
    assert (row.state, devices[1].state) == (state, device)
    assert AuditEntry.objects.filter(target=f"device:{devices[1].pk}").exists()


def test_a_device_that_fails_rests_twice_as_long_each_time(devices):
    quarantine.suspect_device(device_id=devices[1].pk, reason="slow")
    now = timezone.now()
    for _ in range(3):
        BurnIn.objects.create(device=devices[1], state=BurnInState.FAILED, ended_at=now)
    assert quarantine.due_for_burn_in(now + timedelta(minutes=3)) == []
    assert quarantine.due_for_burn_in(now + timedelta(minutes=5)) == [devices[1]]
    assert quarantine.pause_after(40) == quarantine.LONGEST_PAUSE


def test_a_job_that_left_a_device_out_is_offered_it_again_unless_it_flaps(job, devices):
    layout = {
        "replicas": [
            {"microbatches": 3, "stages": [{"devices": ["r0"], "layers": 4}]},
            {
                "microbatches": 5,
                "stages": [{"devices": ["r2"], "layers": 2}, {"devices": ["r3"], "layers": 2}],
            },
        ],
        "idle": ["r1"],
        "dead": [],
    }
    known = {"ranks": {str(rank): {"forward_s": 0.02, "backward_s": 0.04} for rank in (0, 2, 3)}}
    health = [{"rank": rank, "state": "idle" if rank == 1 else "works"} for rank in range(4)]
    TrainingRun.objects.update(
        layout=layout, facts={"speeds": {"1": 0.33}}, costs=known, health=health, iteration_s=0.9
    )
    fault = Injection.objects.create(
        run=job.training, mode="slow", rank=1, factor=3, applied_at=timezone.now()
    )
    assert readmit(devices[1].pk) == []  # its process is slow, whatever its device can do
    fault.delete()
    (row,) = readmit(devices[1].pk)
    assert row.state == "proposed"
    assert "r1" in str(row.plan["replicas"])
    assert TrainingRun.objects.get().facts["speeds"] == {}
    Reconfiguration.objects.all().delete()
    assert readmit(devices[1].pk) == []  # what was turned down is not offered again in the same layout
    TrainingRun.objects.update(facts={"speeds": {"1": 0.33}})
    for _ in range(3):
        clear_verdict(verdict_id=opened(job, devices).pk, reason="")
    assert readmit(devices[1].pk) == []
    assert Verdict.objects.filter(state=VerdictState.OPEN).count() == 0
