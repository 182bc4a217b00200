"""A training job on real rank processes, from queued to a stored model, past a slow rank and a dead one."""

import pytest

from cluster.models import Lease
from jobs.core.states import FaultMode
from jobs.models import Artifact, Iteration, Reconfiguration
from jobs.services.reconfigurations import approve
from jobs.services.training import inject_fault
from telemetry.models import FailureEvent, Verdict

PATIENCE_S = 240.0
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.platform,
    pytest.mark.timeout(600),
]


def test_a_slow_rank_is_named_a_plan_approved_by_somebody_else_executed_and_measured(train, people):
    running = train(checkpoint_every=100_000)
    running.until(lambda: running.run.step >= 22, "it trains")
    inject_fault(job_id=running.job_id, mode=FaultMode.SLOW, rank=1, factor=4.0, seconds=None, actor="otto")
    verdict = running.until(lambda: Verdict.objects.filter(kind="device_fail_slow").first(), "it is noticed")
    assert (verdict.subject["rank"], verdict.device.index) == (1, 1)
    assert verdict.factor > 1.5
    assert FailureEvent.objects.filter(kind="verdict.device_fail_slow", device=verdict.device).exists()

    plan = running.until(lambda: Reconfiguration.objects.filter(state="proposed").first(), "a plan")
    approve(reconfiguration_id=plan.pk, approver=people["grace"], actor="grace")
    running.until(lambda: Reconfiguration.objects.filter(pk=plan.pk, state="executed").exists(), "executed")
    running.until(lambda: Reconfiguration.objects.get(pk=plan.pk).outcome.get("iteration_s"), "measured")
    plan.refresh_from_db()
    assert {"drain", "vote", "rebuild", "transfer", "verify", "resume"} <= set(plan.outcome["phases"])
    assert plan.outcome["predicted_iteration_s"] == plan.predicted_iteration_s
    run = running.run
    assert run.layout["replicas"] == plan.plan["replicas"]
    assert run.epoch == plan.epoch + 1
    steps = list(Iteration.objects.order_by("step").values_list("step", flat=True))
    assert steps == list(range(1, len(steps) + 1))
    assert Verdict.objects.get(pk=verdict.pk).state == "cleared"
    assert running.end().state == "cancelled"
    assert running.run.checkpoint_step > plan.outcome["step"]  # it left with what it had


def test_a_run_survives_a_dead_rank_and_a_dead_driver_and_ends_with_a_model(train):
    running = train(steps=60, checkpoint_every=10)
    running.until(lambda: running.run.step >= 12, "it trains")
    inject_fault(job_id=running.job_id, mode=FaultMode.STOP, rank=3, factor=1.0, seconds=None, actor="otto")
    verdict = running.until(lambda: Verdict.objects.filter(kind="fail_stop").first(), "it is noticed")
    assert verdict.subject["rank"] == 3
    running.until(lambda: Reconfiguration.objects.filter(state="executed").exists(), "replanned")
    plan = Reconfiguration.objects.get(state="executed")
    assert (plan.plan["dead"], plan.by_policy, plan.approver) == (["r3"], True, None)

    # Another owner has the lease: this driver must stop at once, whatever it was about to write.
    running.until(lambda: running.run.step >= 25, "it goes on without the rank")
    Lease.objects.filter(name=f"training:{running.job_id}").update(owner="a ghost", epoch=10_000)
    running.thread.join(PATIENCE_S)
    assert running.job.state == "running"
    Lease.objects.filter(name=f"training:{running.job_id}").update(owner="")
    running.drive()
    running.until(lambda: running.job.state == "completed", "another driver ends it")

    job = running.job
    assert Artifact.objects.get(pk=job.summary["best"]["model"]).size_bytes > 10_000
    assert job.attempt == 2
    steps = list(Iteration.objects.order_by("step").values_list("step", flat=True))
    assert steps == list(range(1, 61))
    assert not Verdict.objects.filter(state="open").exists()
