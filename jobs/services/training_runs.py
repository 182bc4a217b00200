"""What the driver of a training job writes: every write in a transaction that is fenced by its lease.

Whoever writes about a job locks its lease first, where one is held, and its row next: then no two
transactions wait for each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from cluster.services.leases import Held, fence
from jobs.core.states import ENDED, JobState, ReconfigurationState
from jobs.models import Artifact, Injection, Iteration, Job, Reconfiguration, TrainingRun
from jobs.services.artifacts import store_artifact
from jobs.services.lifecycle import move_job, tell
from jobs.services.reconfigurations import supersede
from journal.services import Fact, record

# So many iterations keep their raw chunks, so many their row; older ones are thinned out to every tenth.
RAW_KEPT, ROWS_KEPT, THINNED = 20, 20_000, 10


@dataclass(frozen=True)
class CommittedStep:
    """One committed iteration as the driver put it together from its ranks."""

    step: int
    epoch: int
    seconds: float
    expected_s: float | None
    loss: float | None
    tokens: int
    ranks: list[dict[str, Any]]


@dataclass(frozen=True)
class Progress:
    """What a turn of the driver brings; fields of the run that changed stand in `fields`."""

    steps: Sequence[CommittedStep] = ()
    fields: dict[str, Any] = field(default_factory=dict)
    facts: Sequence[Fact] = ()


@transaction.atomic
def claim_run(*, job_id: UUID, held: Held, devices: list[dict[str, Any]]) -> tuple[Job, TrainingRun] | None:
    """Start a queued training job or go on with a running one; None if there is nothing to drive.

    Whatever came after the last checkpoint is done again: those iterations are forgotten. Plans that were
    made for the ranks of the driver before are superseded.
    """
    fence(held)
    job = Job.objects.select_for_update().get(pk=job_id)
    if job.state == JobState.QUEUED:
        move_job(job, JobState.RUNNING, substate="starting")
    if job.state != JobState.RUNNING:
        return None
    Job.objects.filter(pk=job_id).update(attempt=F("attempt") + 1)
    run = TrainingRun.objects.select_for_update().get(pk=job_id)
    supersede(job_id=job_id, reason="the ranks were started anew")
    run.epoch += 1
    run.step = run.checkpoint_step or 0
    run.devices, run.health = devices, []
    # Who had died has a new process now.
    speeds = {rank: speed for rank, speed in run.facts.get("speeds", {}).items() if speed > 0}
    run.facts = {**run.facts, "speeds": speeds, "since": timezone.now().isoformat(), "returned": {}}
    run.save(update_fields=["epoch", "step", "devices", "health", "facts"])
    Iteration.objects.filter(run=run, step__gt=run.step).delete()
    Injection.objects.filter(run=run, applied_at__isnull=True).delete()
    return job, run


@transaction.atomic
def write_progress(*, run: TrainingRun, held: Held, progress: Progress) -> None:
    """Write a turn: iterations, the run's figures, events; all of it or nothing."""
    job = _lock(run, held)
    if progress.steps:
        Iteration.objects.bulk_create(
            [
                Iteration(
                    run=run, step=each.step, epoch=each.epoch, seconds=each.seconds,
                    expected_s=each.expected_s, loss=each.loss, tokens=each.tokens, ranks=each.ranks,
                )
                for each in progress.steps
            ],
            update_conflicts=True,
            unique_fields=["run", "step"],
            update_fields=["epoch", "seconds", "expected_s", "loss", "tokens", "ranks"],
        )  # fmt: skip
        _forget_old(run, progress.steps[-1].step)
    if progress.fields:
        TrainingRun.objects.filter(pk=run.pk).update(**progress.fields)
    facts = [*progress.facts]
    if progress.steps:
        job.summary = {**job.summary, **summary_of(progress, run)}
        job.save(update_fields=["summary"])
        facts.append(Fact("training.progress", progress_facts(progress)))
    record(job.stream, facts)
    if progress.steps:
        record(f"team:{job.team_id}", [Fact("job.progress", {"id": str(job.pk), "summary": job.summary})])


def _lock(run: TrainingRun, held: Held) -> Job:
    fence(held)
    return Job.objects.select_for_update().get(pk=run.pk)


def _forget_old(run: TrainingRun, step: int) -> None:
    old = Iteration.objects.filter(run=run, step__lte=step - RAW_KEPT, ranks__isnull=False)
    old.update(ranks=None)
    if step % 100 == 0:
        ancient = Iteration.objects.filter(run=run, step__lte=step - ROWS_KEPT)
        ancient.annotate(rest=F("step") % THINNED).exclude(rest=0).delete()


def summary_of(progress: Progress, run: TrainingRun) -> dict[str, Any]:
    """Return what a job's list shows of a training job."""
    last = progress.steps[-1]
    return {
        "step": last.step,
        "steps_total": run.steps_total,
        "loss": last.loss,
        "iteration_s": progress.fields.get("iteration_s"),
        "expected_s": last.expected_s,
        "epoch": last.epoch,
    }


def progress_facts(progress: Progress) -> dict[str, Any]:
    """Return what the stream of a training job says of a turn: all its iterations in a few numbers each."""
    return {
        "steps": [
            {"step": each.step, "epoch": each.epoch, "seconds": each.seconds, "loss": each.loss,
             "expected_s": each.expected_s, "tokens": each.tokens}
            for each in progress.steps
        ],
        "iteration_s": progress.fields.get("iteration_s"),
        "health": progress.fields.get("health"),
    }  # fmt: skip


@transaction.atomic
def set_layout(
    *,
    run: TrainingRun,
    held: Held,
    epoch: int,
    layout: dict[str, Any],
    digest: str,
    facts: Sequence[Fact] = (),
) -> None:
    """Record that the job runs in a layout under a new epoch."""
    _lock(run, held)
    TrainingRun.objects.filter(pk=run.pk).update(
        epoch=epoch, layout=layout, layout_digest=digest, iteration_s=None, costs={}
    )
    record(f"job:{run.pk}", list(facts))


@transaction.atomic
def ranks_back(*, run: TrainingRun, held: Held, ranks: Sequence[int]) -> dict[str, Any]:
    """Record that ranks that had died live again and have nothing to do; return the layout that says so."""
    _lock(run, held)
    row = TrainingRun.objects.select_for_update().get(pk=run.pk)
    names = {f"r{rank}" for rank in ranks}
    layout = {
        **row.layout,
        "idle": sorted({*row.layout.get("idle", []), *names}, key=_rank_of),
        "dead": [name for name in row.layout.get("dead", []) if name not in names],
    }
    speeds = {rank: s for rank, s in row.facts.get("speeds", {}).items() if f"r{rank}" not in names}
    # Whether a layout with them is better has not been looked at yet.
    returned = row.facts.get("returned", {}) | {str(rank): timezone.now().isoformat() for rank in ranks}
    facts = {**row.facts, "speeds": speeds, "offered": None, "returned": returned}
    TrainingRun.objects.filter(pk=run.pk).update(layout=layout, facts=facts)
    record(f"job:{run.pk}", [Fact("training.ranks_back", {"ranks": sorted(ranks), "layout": layout})])
    return layout


def _rank_of(name: str) -> int:
    return int(name[1:])


@transaction.atomic
def rewind(*, run: TrainingRun, held: Held, step: int, checkpointed: bool) -> None:
    """Record that the ranks go on after this committed step; what came later is forgotten and done again.

    `checkpointed` says that they took it from a checkpoint, which may be newer than the last one recorded.
    """
    _lock(run, held)
    Iteration.objects.filter(run=run, step__gt=step).delete()
    changes: dict[str, Any] = {"step": step}
    if checkpointed:
        changes["checkpoint_step"] = run.checkpoint_step = step or None
    TrainingRun.objects.filter(pk=run.pk).update(**changes)
    run.step = step


@transaction.atomic
def record_checkpoint(*, run: TrainingRun, held: Held, step: int, path: str) -> None:
    """Record the last complete checkpoint, from which another driver would go on."""
    _lock(run, held)
    TrainingRun.objects.filter(pk=run.pk).update(checkpoint_step=step, checkpoint_path=path)
    record(f"job:{run.pk}", [Fact("training.checkpoint", {"step": step})])


def take_injections(*, run: TrainingRun, held: Held) -> list[Injection]:
    """Return the faults that were asked for since the last call, each once."""
    waiting = list(Injection.objects.filter(run=run, applied_at__isnull=True).order_by("created_at", "id"))
    if waiting:
        with transaction.atomic():
            fence(held)
            Injection.objects.filter(pk__in=[row.pk for row in waiting]).update(applied_at=timezone.now())
    return waiting


def approved_plan(job_id: UUID) -> Reconfiguration | None:
    """Return the plan that a driver has to execute, if there is one."""
    return Reconfiguration.objects.filter(job_id=job_id, state=ReconfigurationState.APPROVED).first()


@transaction.atomic
def set_substate(*, job_id: UUID, held: Held, substate: str) -> None:
    """Say what a running job is at, if that is news."""
    fence(held)
    job = Job.objects.select_for_update().get(pk=job_id)
    if job.state == JobState.RUNNING and job.substate != substate and job.cancel_asked_at is None:
        job.substate = substate
        job.save(update_fields=["substate"])
        tell(job)


@transaction.atomic
def end_run(
    *, run: TrainingRun, held: Held, state: JobState, reason: str = "", model: Path | None = None
) -> Artifact | None:
    """End the job, with its final model where there is one; what was planned for it is superseded."""
    job = _lock(run, held)
    if JobState(job.state) in ENDED:
        return None
    artifact = None
    if model is not None:
        artifact = store_artifact(job=job, source=model, name=f"{run.pk}.safetensors", kind="model")
        best = {"trial": 0, "metric": _final_loss(run), "config": job.spec["parameters"]}
        job.summary = {**job.summary, "best": {**best, "model": str(artifact.pk)}}
        job.save(update_fields=["summary"])
    move_job(job, state, reason=reason or (job.reason if state is JobState.CANCELLED else ""))
    supersede(job_id=job.pk, reason=f"the job is {state}")
    return artifact


def _final_loss(run: TrainingRun) -> float | None:
    rows = (
        Iteration.objects.filter(run=run, loss__isnull=False).order_by("-step").values_list("loss", flat=True)
    )
    losses = [loss for loss in rows[:10] if loss is not None]
    return sum(losses) / len(losses) if losses else None
