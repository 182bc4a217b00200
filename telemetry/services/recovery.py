"""From a verdict to a plan: what the planner makes of it, who has to approve, and what was decided."""

import time
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from jobs.core.errors import JobMovedOn, NoFeasiblePlan
from jobs.core.states import PENDING, JobState
from jobs.models import Job, Reconfiguration, TrainingRun
from jobs.services.reconfigurations import Proposal, propose
from journal.services import Fact, record, ring
from telemetry.core.states import ACTIONABLE, VerdictKind, VerdictState
from telemetry.models import Verdict
from telemetry.services.quarantine import suspect_device

log = structlog.get_logger(__name__)
ANSWER, QUEUE = "recovery.answer", "recovery"
# An incident that nobody answered for so long lost its message.
SILENT = timedelta(seconds=10)
# One for which there was no better layout is looked at again, at first soon, later every so often.
LONGEST_REST = timedelta(minutes=5)


def ring_recovery(verdict: Verdict) -> None:
    """Have the recovery loop look at an incident that another layout could mend."""
    if verdict.kind in ACTIONABLE:
        ring(ANSWER, queue=QUEUE, args=[str(verdict.pk)])


def unanswered() -> list[UUID]:
    """Return incidents whose message was lost, and those without a plan whose rest is over.

    What was measured when an incident began need not hold minutes later; the rests between two looks grow.
    """
    now = timezone.now()
    open_ones = Verdict.objects.filter(
        state=VerdictState.OPEN,
        kind__in=[kind.value for kind in ACTIONABLE],
        opened_at__lt=now - SILENT,
        job__state=JobState.RUNNING,
    )
    silent = [row.pk for row in open_ones if row.planned_at is None]
    plans = Reconfiguration.objects.filter(job=OuterRef("job"), epoch=OuterRef("job__training__epoch"))
    return silent + [row.pk for row in open_ones.exclude(Exists(plans)) if _has_rested(row, now)]


def _has_rested(verdict: Verdict, now: datetime) -> bool:
    if verdict.planned_at is None:
        return False
    rest = min(max(SILENT, verdict.planned_at - verdict.opened_at), LONGEST_REST)
    return verdict.planned_at < now - rest


def answer_verdict(verdict_id: UUID) -> Reconfiguration | None:
    """Quarantine the device of an incident, plan, and propose what is better than the layout as it is.

    Safe to run at any time and again: what is closed or answered by a pending plan stays as it is.
    """
    verdict = Verdict.objects.select_related("job").get(pk=verdict_id)
    job = verdict.job
    if verdict.state != VerdictState.OPEN or verdict.kind not in ACTIONABLE or job.state != JobState.RUNNING:
        return None
    if verdict.device_id and verdict.kind != VerdictKind.FAIL_STOP:
        suspect_device(device_id=verdict.device_id, reason=f"{verdict.kind} in job {job.name}")
    run = TrainingRun.objects.get(pk=job.pk)
    if Reconfiguration.objects.filter(
        job=job, verdict_id=verdict.pk, epoch=run.epoch, state__in=PENDING
    ).exists():
        return None
    proposal, note = plan_for(verdict, job, run)
    if proposal is None:
        _note(verdict, note)
        return None
    return propose_plan(verdict, job, proposal)


def propose_plan(verdict: Verdict | None, job: Job, proposal: Proposal) -> Reconfiguration | None:
    """Propose a plan, and approve it where the job's policy does; None if the job has moved on."""
    recovery = job.spec["recovery"]
    proceeds = (
        verdict is not None and verdict.kind == VerdictKind.FAIL_STOP and recovery["fail_stop"] == "proceed"
    )
    by_policy = proceeds or proposal.kind in recovery["auto"]
    try:
        row = propose(
            job_id=job.pk,
            proposal=proposal,
            by_policy=by_policy,
            open_for=timedelta(seconds=recovery["expire_s"]),
        )
    except JobMovedOn as error:
        # The next look plans for what the job is now.
        log.info("recovery.moved_on", job=str(job.pk), reason=str(error))
        return None
    decides = "the policy lets it through" if by_policy else "an admin decides"
    if verdict is not None:
        _note(verdict, f"{proposal.kind} proposed; {decides}")
    return row


@transaction.atomic
def _note(verdict: Verdict, answer: str) -> None:
    """Write down what was made of an incident, and tell it once."""
    Job.objects.select_for_update().get(pk=verdict.job_id)  # before the verdict, as everybody does
    locked = Verdict.objects.select_for_update().get(pk=verdict.pk)
    is_news = locked.answer != answer[:1000]
    locked.planned_at, locked.answer = timezone.now(), answer[:1000]
    locked.save(update_fields=["planned_at", "answer"])
    if is_news:
        data = {"id": str(locked.pk), "job": str(locked.job_id), "answer": locked.answer}
        record(f"job:{locked.job_id}", [Fact("verdict.answered", data)])


def plan_for(verdict: Verdict | None, job: Job, run: TrainingRun) -> tuple[Proposal | None, str]:
    """Return a proposal, or None and the reason why there is none."""
    # The planner takes a third of a second to load, which only the recovery worker shall pay.
    from jobs.core.training.planning import answer

    situation = situation_of(job, run)
    try:
        found = answer(situation, time.monotonic)
    except NoFeasiblePlan as error:
        return None, f"no layout without it: {error}"
    recovery, chosen = job.spec["recovery"], found.chosen
    if chosen is None:
        return None, f"the layout stays as it is: {found.reason}"
    if verdict is not None and verdict.kind != VerdictKind.FAIL_STOP and chosen.kind not in recovery["auto"]:
        # What the policy lets through helps at once; the better plan is proposed from there.
        chosen = _quick_help(found, recovery["auto"]) or chosen
    assert chosen.layout is not None
    assert chosen.kind is not None
    assert chosen.iteration_s is not None
    others = [each.to_json() for each in found.alternatives]
    return (
        Proposal(
            kind=chosen.kind,
            epoch=run.epoch,
            before=run.layout,
            plan=chosen.layout,
            baseline_iteration_s=found.baseline_iteration_s,
            predicted_iteration_s=chosen.iteration_s,
            predicted_pause_s=chosen.pause_s or 0.0,
            moved_bytes=chosen.moved_bytes,
            needs_checkpoint=chosen.needs_checkpoint,
            alternatives=others,
            memory=chosen.memory,
            facts={**found.facts, "name": chosen.name, "interval_s": list(chosen.interval_s or ())},
            verdict_id=verdict.pk if verdict else None,
        ),
        "",
    )


def _quick_help(found: Any, auto: list[str]) -> Any:
    """Return the best plan that the policy lets through and that is worth its pause, if there is one."""
    baseline = found.baseline_iteration_s
    usable = [
        each
        for each in found.alternatives
        if each.kind in auto and each.iteration_s is not None and each.layout is not None
    ]
    best = min(usable, key=lambda each: each.iteration_s, default=None)
    worth = best is not None and baseline is not None and best.iteration_s < 0.97 * baseline
    return best if worth else None


def situation_of(job: Job, run: TrainingRun) -> Any:
    """Return a running job as the planner sees it: speeds from the open incidents, costs as measured."""
    from jobs.core.training import ModelShape
    from jobs.core.training.planning import Situation

    shared: dict[str, int] = {}
    for device in run.devices:
        shared[device["id"]] = shared.get(device["id"], 0) + 1
    calm = run.costs.get("calm")
    groups = [s["tensor_parallel"] for r in job.spec["layout"]["replicas"] for s in r["stages"]]
    return Situation(
        model=ModelShape(**job.spec["parameters"]),
        schedule=job.spec["schedule"],
        layout={"replicas": run.layout["replicas"]},
        nodes=tuple(device["node"] for device in run.devices),
        memory_bytes=tuple(
            (device["memory_bytes"] or 1 << 62) // shared[device["id"]] for device in run.devices
        ),
        speeds=speeds_of(job, run),
        measured=run.costs.get("ranks", {}),
        measured_iteration_s=run.iteration_s,
        steps_left=max(0, run.steps_total - run.step),
        steps_since_checkpoint=max(0, run.step - (run.checkpoint_step or 0)),
        pause_s=run.facts.get("pause_s"),
        largest_group=max(groups),
        cores=tuple(device["id"] for device in run.devices),
        resting=frozenset(int(rank) for rank in run.costs.get("resting", [])),
        calm=(calm["layout"], calm["iteration_s"]) if calm else None,
        spread=tuple(run.costs.get("spread", (1.0, 1.0))),
    )


def speeds_of(job: Job, run: TrainingRun) -> dict[int, float]:
    """Return speeds by rank: what is known of excluded ranks, and what the open incidents say."""
    speeds = {int(rank): float(speed) for rank, speed in run.facts.get("speeds", {}).items()}
    for verdict in Verdict.objects.filter(
        job=job, state=VerdictState.OPEN, kind__in=[kind.value for kind in ACTIONABLE]
    ):
        rank = verdict.subject.get("rank")
        if rank is None:
            continue
        slow = 1.0 / verdict.factor if verdict.factor and verdict.factor > 1 else 1.0
        found = 0.0 if verdict.kind == VerdictKind.FAIL_STOP else slow
        speeds[rank] = min(speeds.get(rank, 1.0), found)
    return speeds
