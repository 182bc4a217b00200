"""A study, or a training job with an incident, as its driver would have left it: rows and events.

Written through the models, in bulk, so that tests of pages need no driver and 50,000 trials take seconds.
"""

import copy
import math
import random
from datetime import timedelta
from typing import Any

from django.utils import timezone

from cluster.core.roles import Role
from cluster.models import Device, Membership, Node, Team, User
from jobs.core.states import JobKind, JobState
from jobs.models import Artifact, Iteration, Job, Reconfiguration, TrainingRun
from jobs.services.reconfigurations import Proposal, propose
from journal.services import Fact, audit, record
from telemetry.core.states import VerdictKind
from telemetry.models import FailureEvent, Verdict
from telemetry.services.verdicts import FoundVerdict, open_verdict
from tuning.core.states import TrialState
from tuning.models import Container, Study, Target, Trial, Workload

SPACE = {
    "lr": {"type": "loguniform", "low": 0.001, "high": 1.0},
    "momentum": {"type": "uniform", "low": 0.5, "high": 0.99},
    "batch_size": {"type": "choice", "values": [32, 64, 128]},
    "gamma": {"type": "uniform", "low": 0.1, "high": 1.0},
}
EPOCHS = 20
HOSTILE = '<img src=x onerror=alert(1)> & "quoted" \u202eevil'
LOG = (
    "epoch {e}: train loss 0.4312, accuracy 0.871\n"
    "\x1b[31mwarning\x1b[0m: gradient norm 12.4 clipped \u202eesrever\n"
)


def team_with(user: User, role: Role, slug: str = "demo") -> Team:
    """Return a team in which the user has a role."""
    team, _ = Team.objects.get_or_create(slug=slug, defaults={"name": slug.title()})
    Membership.objects.update_or_create(team=team, user=user, defaults={"role": role})
    return team


def person(name: str, password: str | None = None, **extra: Any) -> User:
    """Return a person; without a password, whose hash is slow on purpose, they sign in by other ways."""
    return User.objects.create_user(username=name, password=password, **extra)


def workload(name: str = "digits-mlp") -> Workload:
    """Return an available workload with four hyperparameters."""
    description = {
        "name": name,
        "description": "A four-layer network on scikit-learn's digits.",
        "space": SPACE,
        "form": [{"name": parameter} for parameter in SPACE],
        "metric": "accuracy",
        "mode": "max",
        "epochs": EPOCHS,
        "parameters": {},
        "error": None,
    }
    row, _ = Workload.objects.update_or_create(
        name=name, defaults={"description": description, "is_available": True}
    )
    return row


def cores(count: int = 2) -> list[Device]:
    """Return the devices of one machine."""
    now = timezone.now()
    node, _ = Node.objects.get_or_create(
        name="box", defaults={"cpus": count, "memory_bytes": 8 << 30, "seen_at": now}
    )
    return [
        Device.objects.get_or_create(node=node, index=i, defaults={"kind": "cpu", "seen_at": now})[0]
        for i in range(count)
    ]


def study(
    owner: User,
    team: Team,
    *,
    trials: int = 200,
    state: JobState = JobState.COMPLETED,
    name: str = "digits sweep",
    seed: int = 0,
    ended: int | None = None,
) -> Job:
    """Return a study of which `ended` trials (all of them, unless said otherwise) have ended."""
    rng, devices = random.Random(seed), cores()
    workload()
    now = timezone.now()
    ended = trials if ended is None else ended
    rows, containers = _rows(rng, trials, ended, devices, state)
    seconds = max((r.ended_s or 0.0 for r in rows), default=0.0)
    best = max((r for r in rows if r.metric is not None), key=lambda r: r.metric, default=None)
    job = Job.objects.create(
        kind=JobKind.STUDY,
        name=name,
        team=team,
        owner=owner,
        state=state,
        reason="the cluster was shut down" if state is JobState.FAILED else "",
        spec={
            "workload": "digits-mlp",
            "trials": trials,
            "epochs": EPOCHS,
            "search": "random",
            "scheduler": {"name": "asha", "grace": 3, "reduction": 3},
            "scaling": 8,
            "fusion": "auto",
            "eager": 0.5,
            "top_k": 3,
            "seed": seed,
            "space": None,
        },
        objective={"at_least": 0.95},
        started_at=None if state is JobState.QUEUED else now - timedelta(seconds=seconds + 5),
        ended_at=now if state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED) else None,
        summary={"device_seconds": sum(r.device_seconds for r in rows)},
        attempt=1,
    )
    Study.objects.create(
        job=job,
        workload="digits-mlp",
        metric="accuracy",
        mode="max",
        trials_total=trials,
        trials_ended=sum(r.state not in (TrialState.WAITING, TrialState.RUNNING) for r in rows),
        best_metric=best.metric if best else None,
        best_trial=best.number if best else None,
        elapsed_s=seconds,
    )
    for row in [*rows, *containers]:
        row.job = job
    Trial.objects.bulk_create(rows, batch_size=5000)
    Container.objects.bulk_create(containers, batch_size=5000)
    if state is JobState.COMPLETED and best is not None:
        _targets(job, rows, seconds, devices)
    if any(r.state == TrialState.FAILED for r in rows[:500]):
        _failures(job, rows, devices)
    record(job.stream, [Fact("job.state", {"state": state})])
    record(f"team:{team.pk}", [Fact("job.state", {"state": state})])
    audit(
        actor=owner.username,
        action="job.submit",
        target=f"job:{job.pk}",
        team_id=team.pk,
        detail={"name": name},
    )
    return job


def _rows(
    rng: random.Random, trials: int, ended: int, devices: list[Device], state: JobState
) -> tuple[list[Trial], list[Container]]:
    clocks = [0.0] * len(devices)
    rows, containers = [], []
    for number in range(trials if state is not JobState.QUEUED else 0):
        device = number % len(devices)
        config = {
            "lr": 10 ** rng.uniform(-3, 0),
            "momentum": rng.uniform(0.5, 0.99),
            "batch_size": rng.choice([32, 64, 128]),
            "gamma": rng.uniform(0.1, 1.0),
        }
        row = Trial(number=number, config=config, log=LOG.format(e=1) * 3)
        if number < ended:
            start = clocks[device]
            _finish(rng, row, start)
            clocks[device] = (row.ended_s or start) + 0.02
            containers.append(_container(row, devices[device], number))
        elif state is JobState.RUNNING and number < ended + len(devices):
            row.state, row.started_s, row.epochs = TrialState.RUNNING, clocks[device], 4
            row.curve = [[e, 0.1 + 0.12 * e] for e in range(1, 5)]
            containers.append(_container(row, devices[device], number))
        rows.append(row)
    return rows, containers


def _finish(rng: random.Random, row: Trial, start: float) -> None:
    lr, momentum, gamma = row.config["lr"], row.config["momentum"], row.config["gamma"]
    effective = math.log10(lr / (1 - momentum))
    top = 0.98 - 0.09 * (effective + 0.4) ** 2 - 0.05 * (1 - gamma) ** 2 + rng.gauss(0, 0.008)
    top = min(max(top, 0.1), 0.99)
    row.started_s = start
    row.epochs = EPOCHS if top > 0.85 or rng.random() < 0.2 else 3 if top < 0.6 else 9
    row.state = TrialState.COMPLETED if row.epochs == EPOCHS else TrialState.STOPPED
    curve = [[e, round(top * (1 - math.exp(-e / 2.5)), 4)] for e in range(1, row.epochs + 1)]
    row.curve, row.metric = curve, curve[-1][1]
    if rng.random() < 0.04:
        row.state, row.metric = TrialState.FAILED, None
        row.reason, row.curve = _fault(rng, curve)
    row.device_seconds = 0.012 * row.epochs * (128 / row.config["batch_size"]) ** 0.5
    row.ended_s = start + row.device_seconds


def _fault(rng: random.Random, curve: list[list[Any]]) -> tuple[str, list[list[Any]]]:
    if rng.random() < 0.6:
        return "the metric accuracy is not finite (NaN) at epoch 2", [*curve[:1], [2, None]]
    return f"RuntimeError: {HOSTILE}", curve[:1]


def _container(row: Trial, device: Device, number: int) -> Container:
    return Container(
        run=f"c{number}",
        trials=[row.number],
        batch_size=row.config["batch_size"],
        device=device,
        device_label=str(device),
        start_s=row.started_s or 0.0,
        end_s=row.ended_s,
        outcome="" if row.ended_s is None else "failed" if row.state == TrialState.FAILED else "completed",
    )


def _targets(job: Job, rows: list[Trial], seconds: float, devices: list[Device]) -> None:
    best = sorted((r for r in rows if r.metric is not None), key=lambda r: -(r.metric or 0.0))[:3]
    for place, row in enumerate(best):
        model = Artifact.objects.create(
            job=job,
            name=f"target-{row.number}.safetensors",
            kind="model",
            path="absent",
            size_bytes=2_700_000,
            sha256="0" * 64,
        )
        Target.objects.create(
            job=job,
            trial=row,
            state="completed",
            metric=min((row.metric or 0.0) + 0.006 - 0.002 * place, 0.994),
            curve=[[e, 0.99 * (1 - math.exp(-e / 2))] for e in range(1, EPOCHS + 1)],
            started_after_finished_fraction=0.52 if place == 0 else 1.0,
            device_label=str(devices[place % len(devices)]),
            start_s=seconds + 0.2 + place // 2 * 1.7,
            end_s=seconds + 1.8 + place // 2 * 1.7,
            model=model,
        )


def _failures(job: Job, rows: list[Trial], devices: list[Device]) -> None:
    FailureEvent.objects.bulk_create(
        FailureEvent(
            kind="trial.failed",
            job=job,
            device=devices[row.number % len(devices)],
            message=row.reason or "",
            detail={"trial": row.number},
        )
        for row in rows[:500]
        if row.state == TrialState.FAILED
    )


def training(
    owner: User,
    team: Team,
    *,
    state: JobState = JobState.RUNNING,
    steps: int = 60,
    name: str = "tiny GPT",
    slow_from: int | None = None,
) -> Job:
    """Return a training job of two pipelines of two stages; rank 1 is slow from a step on."""
    devices = cores()
    now = timezone.now()
    layout = pipelines((2, 2), (2, 2), microbatches=(4, 4))
    spec_layout = {
        "replicas": [
            {"microbatches": 4, "stages": [{"layers": 2, "tensor_parallel": 1}] * 2} for _ in range(2)
        ]
    }
    job = Job.objects.create(
        kind=JobKind.TRAINING,
        name=name,
        team=team,
        owner=owner,
        state=state,
        reason="its machine was taken away" if state is JobState.FAILED else "",
        spec={
            "workload": "pydoc-gpt",
            "parameters": {"layers": 4, "width": 64, "heads": 4, "context": 64, "microbatch_tokens": 256},
            "layout": spec_layout, "schedule": "1f1b", "microbatches": 8, "steps": 200,
            "checkpoint_every": 50, "devices": 4, "seed": 0, "lr": 0.003, "lend_bubbles": True,
            "recovery": {"approve": ["repartition", "regroup", "exclude"], "auto": ["rebalance"],
                         "fail_stop": "proceed", "expire_s": 3600.0},
        },
        started_at=None if state is JobState.QUEUED else now - timedelta(seconds=steps),
        ended_at=now if state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED) else None,
        attempt=1,
    )  # fmt: skip
    begun = state is not JobState.QUEUED
    places = [{"id": str(d.pk), "label": str(d), "node": d.node.name} for d in devices]
    run = TrainingRun.objects.create(
        job=job,
        steps_total=200,
        step=steps if begun else 0,
        epoch=1 if begun else 0,
        layout=layout,
        devices=[places[rank % len(places)] for rank in range(4)] if begun else [],
        loss=2.31 if begun else None,
        iteration_s=(0.42 if slow_from is None else 0.93) if begun else None,
        expected_s=0.4 if begun else None,
        checkpoint_step=50 if begun else None,
        costs={"ranks": {str(r): {"forward_s": 0.02, "backward_s": 0.04} for r in range(4)}} if begun else {},
        health=[{"rank": r, "slowdown": 2.5 if r == 1 and slow_from is not None else 1.0} for r in range(4)]
        if begun
        else [],
    )
    if begun:
        Iteration.objects.bulk_create(_iterations(run, steps, slow_from), batch_size=2000)
    for stream in (job.stream, f"team:{team.pk}"):
        record(stream, [Fact("job.state", {"state": state})])
    return job


def pipelines(*stages: tuple[int, ...], microbatches: tuple[int, ...]) -> dict[str, Any]:
    """Return a layout of pipelines with these layers per stage, one rank each, numbered in order."""
    rank, replicas = 0, []
    for layers, count in zip(stages, microbatches, strict=True):
        rows = [{"devices": [f"r{rank + i}"], "layers": own} for i, own in enumerate(layers)]
        rank += len(layers)
        replicas.append({"microbatches": count, "stages": rows})
    return {"replicas": replicas, "idle": [], "dead": []}


def _iterations(run: TrainingRun, steps: int, slow_from: int | None) -> list[Iteration]:
    rng = random.Random(1)
    rows = []
    for step in range(1, steps + 1):
        slow = slow_from is not None and step >= slow_from
        seconds = (0.93 if slow else 0.4) * (1 + rng.gauss(0, 0.02))
        loss = 4.6 * math.exp(-step / 80) + rng.gauss(0, 0.03)
        rows.append(
            Iteration(run=run, step=step, epoch=1, seconds=seconds, expected_s=0.4, loss=loss, tokens=2048)
        )
    rows[-1].ranks = [_rank(rank, slow_from is not None and rank == 1) for rank in range(4)]
    return rows


def _rank(rank: int, slow: bool) -> dict[str, Any]:
    """One rank's iteration on a clock of its own, by a schedule of four micro-batches."""
    clock, chunks, bubbles = 0.0, [], []
    order = [("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("F", 3), ("B", 2), ("B", 3)]
    for slot, (kind, microbatch) in enumerate(order):
        wait = 0.02 if kind == "B" or (rank % 2 and microbatch == 0) else 0.0
        if wait:
            bubbles.append({"slot": slot, "seconds": wait})
        seconds = (0.02 if kind == "F" else 0.04) * (2.5 if slow else 1.0)
        chunks.append({"type": kind, "microbatch": microbatch, "stage": rank % 2, "seconds": seconds})
        clock += wait + seconds
    bubbles.append({"slot": len(order), "seconds": 0.03})
    return {"rank": rank, "replica": rank // 2, "stage": rank % 2, "seconds": clock + 0.03,
            "own_s": 0.24, "chunks": chunks, "bubbles": bubbles}  # fmt: skip


def incident(job: Job, *, kind: VerdictKind = VerdictKind.DEVICE_FAIL_SLOW) -> Verdict:
    """Open an incident on rank 1 of a training job, through the service."""
    run = job.training
    steps = list(range(10, 44))
    found = FoundVerdict(
        kind=kind,
        subject={"rank": 1, "replica": 0, "stage": 1, "node": "box"},
        confidence=0.99,
        factor=2.5,
        first_step=40,
        detected_step=43,
        evidence=[
            {"test": "same_stage_peers", "value": 2.5, "threshold": 1.15, "samples": 44},
            {"test": "cusum", "value": 14.2, "threshold": 9.0, "samples": 4},
            {"test": "against_own_past", "value": 2.4, "threshold": 1.15, "samples": 40},
        ],
        series={
            "unit": "seconds per micro-batch",
            "steps": steps,
            "subject": [0.06 if step < 40 else 0.15 for step in steps],
            "peers": [0.06 for _ in steps],
        },
        first_sample_at=timezone.now() - timedelta(seconds=6),
    )
    device = run.devices[1]["id"] if run.devices else None
    return open_verdict(job_id=job.pk, found=found, device_id=device)[0]


def plan(job: Job, verdict: Verdict | None = None, **changes: Any) -> Reconfiguration:
    """Propose to take layers off the slow rank, through the service; other plans stand beside it."""
    run = TrainingRun.objects.get(pk=job.pk)
    before = run.layout
    wanted = pipelines((3, 1), (2, 2), microbatches=(3, 5))
    moved = copy.deepcopy(before)
    for replica, count in zip(moved["replicas"], (2, 6), strict=True):
        replica["microbatches"] = count
    memory = [
        {"rank": r, "before_bytes": 40 << 20, "after_bytes": (60, 20, 40, 40)[r] << 20,
         "available_bytes": 2 << 30}
        for r in range(4)
    ]  # fmt: skip
    fields: dict[str, Any] = {
        "kind": "repartition", "epoch": run.epoch, "before": before, "plan": wanted,
        "baseline_iteration_s": 0.93, "predicted_iteration_s": 0.55, "predicted_pause_s": 1.1,
        "moved_bytes": 600_000, "memory": memory, "verdict_id": verdict.pk if verdict else None,
        "facts": {"speeds": {"1": 0.4}, "gap": 0.0, "optimal": True},
        "alternatives": [
            {"name": "no_action", "title": "do nothing", "kind": None, "plan": before,
             "predicted_iteration_s": 0.93, "predicted_pause_s": 0.0, "moved_bytes": 0,
             "needs_checkpoint": False, "memory": memory, "reason": "69.09% slower than the plan"},
            {"name": "rebalance", "title": "move micro-batches between replicas only", "kind": "rebalance",
             "plan": moved, "predicted_iteration_s": 0.71, "predicted_pause_s": 0.9, "moved_bytes": 0,
             "needs_checkpoint": False, "memory": memory, "reason": "29.09% slower than the plan"},
            {"name": "reroute", "title": "send the micro-batches of dead stages elsewhere", "kind": None,
             "plan": None, "predicted_iteration_s": None, "predicted_pause_s": None, "moved_bytes": 0,
             "needs_checkpoint": False, "memory": [], "reason": "cannot run: nobody is dead"},
        ],
    }  # fmt: skip
    return propose(job_id=job.pk, proposal=Proposal(**(fields | changes)), by_policy=False)
