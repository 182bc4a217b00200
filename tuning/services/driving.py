"""What the driver of a study writes: one transaction per turn, fenced by its lease."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F

from cluster.models import Device
from cluster.services.leases import Held, fence
from jobs.core.states import ENDED, JobState
from jobs.models import Job
from jobs.services.artifacts import store_artifact
from jobs.services.grants import grant_of, stopped
from jobs.services.lifecycle import move_job, tell
from journal.services import Fact, record
from tuning.core.study import Study as Brain
from tuning.core.study import StudyFacts, StudySpec, event_from_json, facts_from_json, summary
from tuning.core.study.actions import Finish
from tuning.core.study.events import Resumed
from tuning.models import Study, StudyStep
from tuning.services.rows import Key, Rows, leader_of

# A snapshot costs as much as the study is large, a step next to nothing.
STEPS_PER_SNAPSHOT = 400


@dataclass
class Driving:
    """A study in a driver's hands: the brain, its log, and what of it the database knows."""

    held: Held
    job: Job
    study: Study
    brain: Brain
    step: int
    rows: Rows
    pending: list[dict[str, Any]] = field(default_factory=list)
    since_snapshot: int = 0


@transaction.atomic
def claim_study(*, job_id: UUID, held: Held) -> Job | None:
    """Start a queued job that the queue has given devices, or go on with a running one.

    None if there is nothing to drive. A job that was told to stop before it began has nothing to save.
    """
    fence(held)
    job = Job.objects.select_for_update().get(pk=job_id)
    grant = grant_of(job_id)
    if job.state == JobState.QUEUED and grant is not None and grant.stopping:
        stopped(job_id)
        return None
    if job.state == JobState.QUEUED and grant is not None:
        move_job(job, JobState.RUNNING, substate="starting")
    if job.state != JobState.RUNNING:
        return None
    Job.objects.filter(pk=job_id).update(attempt=F("attempt") + 1)
    return job


def take_up(*, job: Job, held: Held, facts: StudyFacts | None) -> Driving:
    """Rebuild the study's brain where the last driver left it, or make a new one from the facts."""
    study = Study.objects.get(pk=job.pk)
    steps = list(StudyStep.objects.filter(job=job, number__gt=study.snapshot_step).order_by("number"))
    if study.snapshot:
        brain = Brain.restore(json.loads(study.snapshot))
    else:
        known = facts_from_json(json.loads(study.facts)) if study.facts else facts
        if known is None:
            raise ValueError("a study that has not begun needs the facts of its workload")
        brain = Brain(StudySpec.from_dict(job.spec), known)
        Study.objects.filter(pk=job.pk).update(facts=json.dumps(known.to_json()))
    for step in steps:
        replay(brain, json.loads(step.body))
    last = steps[-1].number if steps else study.snapshot_step
    driving = Driving(held, job, study, brain, last, Rows.of(job), since_snapshot=len(steps))
    if brain.finished:  # it was over, and somebody resumed the job
        note(driving, Resumed().to_json())
        brain.apply(Resumed())
    return driving


def replay(brain: Brain, body: dict[str, Any]) -> None:
    """Take the brain through one step of its log."""
    if "decide" in body:
        brain.decide(body["decide"], body["free"])
    else:
        brain.apply(event_from_json(body))


def note(driving: Driving, body: dict[str, Any]) -> None:
    """Add a step to what the next turn writes."""
    driving.pending.append(body)


@transaction.atomic
def write_turn(
    driving: Driving, *, elapsed_s: float, labels: dict[str, Device], finish: Finish | None
) -> None:
    """Write a turn: steps, rows, events, counters, and the end; all of it or nothing.

    Raises LeaseLost if another driver has the study now.
    """
    fence(driving.held)
    job = Job.objects.select_for_update().get(pk=driving.job.pk)
    driving.job = job
    _write_steps(driving)
    facts = driving.rows.write(driving.brain, labels, elapsed_s)
    models = _store_models(driving)
    facts = [_with_artifact(fact, models) for fact in facts]
    summary = _summary(driving, models)
    changed = summary != job.summary
    if changed:
        job.summary = summary
        job.save(update_fields=["summary"])
    _write_study(driving, elapsed_s, summary)
    record(job.stream, facts)
    if finish is not None:
        _end(job, finish, bool(summary.get("best")))
    elif changed and facts:
        record(f"team:{job.team_id}", [Fact("job.progress", {"id": str(job.pk), "summary": summary})])


def turn_written(driving: Driving) -> None:
    """Forget what the committed turn contained."""
    driving.step += len(driving.pending)
    driving.since_snapshot += len(driving.pending)
    if driving.since_snapshot >= STEPS_PER_SNAPSHOT:
        driving.since_snapshot = 0
    driving.pending.clear()
    driving.rows.committed()


def _write_steps(driving: Driving) -> None:
    StudyStep.objects.bulk_create(
        StudyStep(job=driving.job, number=driving.step + i, body=json.dumps(body))
        for i, body in enumerate(driving.pending, start=1)
    )


def _write_study(driving: Driving, elapsed_s: float, summary: dict[str, Any]) -> None:
    best = summary.get("best") or {}
    changes: dict[str, Any] = {
        "elapsed_s": elapsed_s,
        "trials_ended": summary["trials_ended"],
        "best_metric": best.get("metric"),
        "best_trial": best.get("trial"),
        "transfer": driving.brain.state.transfer,
        "spending": _spending(driving.brain),
    }
    if driving.since_snapshot + len(driving.pending) >= STEPS_PER_SNAPSHOT:
        last = driving.step + len(driving.pending)
        changes |= {"snapshot": json.dumps(driving.brain.snapshot()), "snapshot_step": last}
        StudyStep.objects.filter(job=driving.job, number__lte=last).delete()
    Study.objects.filter(pk=driving.job.pk).update(**changes)


def _spending(brain: Brain) -> dict[str, Any]:
    chores = [chore.to_json() for chore in brain.state.chores.values()]
    return {**summary(brain.state), "chores": chores}


def answer_transfer_wish(*, job: Job) -> bool:
    """Return whether a transfer report was asked for since the last look, and take note of the wish."""
    wished = Study.objects.filter(pk=job.pk, transfer_asked_at__isnull=False)
    return wished.update(transfer_asked_at=None) > 0


def _store_models(driving: Driving) -> dict[Key, str]:
    """Copy finished models into the artifact store; return key of a target -> artifact id."""
    for path, key in driving.rows.new_models(driving.brain):
        name = f"target-{key[0]}{f'-{key[1]}' if key[1] else ''}.safetensors"
        artifact = store_artifact(job=driving.job, source=Path(path), name=name, kind="model")
        driving.rows.stored(key, artifact)
    return driving.rows.models()


def _with_artifact(fact: Fact, models: dict[Key, str]) -> Fact:
    """Name a target's model by its artifact; where the file lies concerns nobody outside."""
    if "model" not in fact.data:
        return fact
    return Fact(fact.kind, {**fact.data, "model": models.get((fact.data["trial"], fact.data["variant"]))})


def _summary(driving: Driving, models: dict[Key, str]) -> dict[str, Any]:
    brain = driving.brain
    best = brain.best()
    if best is not None:
        best = {**best, "model": models.get((best["trial"], best.get("variant", 0)))}
    states: dict[str, int] = {}
    for trial in brain.trials:
        states[str(trial.state)] = states.get(str(trial.state), 0) + 1
    return {
        "best": best,
        "leader": leader_of(brain),
        "trials": states,
        "trials_ended": sum(trial.ended for trial in brain.trials),
        "trials_total": brain.spec.trials,
        "targets": [target.row() | {"model": models.get(target.key)} for target in brain.targets],
        "fusion": brain.fusion(),
        "compile": brain.compilations(),
        "warnings": brain.warnings,
    }


def _end(job: Job, finish: Finish, has_model: bool) -> None:
    if job.cancel_asked_at is not None:
        move_job(job, JobState.CANCELLED, reason=job.reason)
    elif finish.state == "completed" or (finish.state == "cut" and has_model):
        move_job(job, JobState.COMPLETED, reason=finish.reason or "")
    else:
        move_job(job, JobState.FAILED, reason=finish.reason or "no valid trial")


@transaction.atomic
def fail_study(*, job_id: UUID, held: Held, reason: str) -> None:
    """End a job whose study cannot be driven at all."""
    fence(held)
    job = Job.objects.select_for_update().get(pk=job_id)
    if JobState(job.state) not in ENDED:
        move_job(job, JobState.FAILED, reason=reason)


@transaction.atomic
def set_substate(*, job: Job, substate: str) -> None:
    """Say what a running job is at, if that is news."""
    locked = Job.objects.select_for_update().get(pk=job.pk)
    if locked.state == JobState.RUNNING and locked.substate != substate and locked.cancel_asked_at is None:
        locked.substate = substate
        locked.save(update_fields=["substate"])
        tell(locked)


def let_go(*, job: Job) -> None:
    """Have another driver rung for at the next tick: this one is told to stop."""
    Job.objects.filter(pk=job.pk, state=JobState.RUNNING).update(woken_at=None)
