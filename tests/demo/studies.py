"""A study as its driver would have left it: rows and events.

Written through the models, in bulk, so that tests of pages need no driver and 50,000 trials take seconds.
"""

import math
import random
from datetime import timedelta
from typing import Any

from django.utils import timezone

from cluster.core.roles import Role
from cluster.models import Device, Membership, Node, Team, User
from jobs.core.states import JobKind, JobState
from jobs.models import Artifact, Job
from journal.services import Fact, audit, record
from telemetry.models import FailureEvent
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
