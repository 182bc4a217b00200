"""A study's rows in the database, brought in step with its brain; the difference is what happened."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cluster.models import Device
from jobs.models import Artifact, Job
from journal.services import Fact
from tuning.core.states import TRIAL_ENDED, TrialState
from tuning.core.study import Study as Brain
from tuning.core.study.records import Container as BrainContainer
from tuning.core.study.records import Target as BrainTarget
from tuning.core.study.records import Trial as BrainTrial
from tuning.models import Container, Target, Trial

TRIAL_FIELDS = ["state", "reason", "metric", "epochs", "curve", "device_seconds", "started_s", "ended_s"]
CONTAINER_FIELDS = ["end_s", "outcome", "note", "epochs", "spent"]
TARGET_FIELDS = [
    "state", "metric", "curve", "started_after_finished_fraction",
    "device_label", "beside", "note", "start_s", "end_s", "reason",
]  # fmt: skip
Signature = tuple[Any, ...]
Key = tuple[int, int]  # of a target: trial and variant


@dataclass
class Rows:
    """What the database knows of a study; `write` brings it up to date, `committed` makes that stick."""

    job: Job
    trials: dict[int, Signature] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    containers: dict[str, Signature] = field(default_factory=dict)
    targets: dict[Key, Signature] = field(default_factory=dict)
    artifacts: dict[Key, Artifact] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    _next: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, job: Job) -> "Rows":
        """Read what an earlier driver wrote."""
        rows = cls(job)
        for trial in Trial.objects.filter(job=job).defer("curve", "config", "log"):
            rows.states[trial.number] = trial.state
            if trial.started_s is not None:
                rows.started[trial.number] = trial.started_s
            if trial.ended_s is not None:
                rows.ended[trial.number] = trial.ended_s
        for container in Container.objects.filter(job=job):
            outcome = container.outcome or None
            rows.containers[container.run] = (container.end_s, outcome, container.epochs)
        for target in Target.objects.filter(job=job).select_related("trial", "model"):
            key = (target.trial.number, target.variant)
            rows.targets[key] = (target.state,)
            if target.model:
                rows.artifacts[key] = target.model
        return rows

    def write(self, brain: Brain, labels: dict[str, Device], now_s: float) -> list[Fact]:
        """Write every row that differs; return the events that the differences are."""
        self._next = []
        facts = self._write_trials(brain, now_s)
        facts += self._write_containers(brain, labels)
        return facts + self._write_targets(brain)

    def committed(self) -> None:
        """The transaction of the last `write` is committed."""
        for table, changes in self._next:
            table.update(changes)
        self._next = []

    def _write_trials(self, brain: Brain, now_s: float) -> list[Fact]:
        changed = [t for t in brain.trials if self.trials.get(t.number) != _trial_signature(t)]
        name = brain.state.facts.metric
        self._note_times(changed, now_s)
        Trial.objects.bulk_create(
            [self._trial_row(trial, name) for trial in changed],
            batch_size=500,
            update_conflicts=True,
            unique_fields=["job", "number"],
            update_fields=TRIAL_FIELDS,
        )
        facts = [fact for trial in changed for fact in self._trial_facts(trial, name)]
        self._next.append((self.trials, {t.number: _trial_signature(t) for t in changed}))
        self._next.append((self.states, {t.number: str(t.state) for t in changed}))
        return facts

    def _note_times(self, changed: list[BrainTrial], now_s: float) -> None:
        for trial in changed:
            if trial.state == TrialState.RUNNING:
                self.started.setdefault(trial.number, now_s)
            if trial.ended:
                self.ended.setdefault(trial.number, now_s)
            else:
                self.ended.pop(trial.number, None)

    def _trial_row(self, trial: BrainTrial, name: str) -> Trial:
        return Trial(
            job=self.job,
            number=trial.number,
            config=trial.config,
            state=str(trial.state),
            reason=trial.reason[:1000] if trial.reason else None,
            metric=finite(trial.metric(name)),
            epochs=trial.epochs,
            curve=curve_of(trial.metrics, name),
            device_seconds=trial.device_seconds,
            started_s=self.started.get(trial.number),
            ended_s=self.ended.get(trial.number),
        )

    def _trial_facts(self, trial: BrainTrial, name: str) -> Iterator[Fact]:
        before = self.states.get(trial.number)
        row = {**trial.row(name), "metric": finite(trial.metric(name))}
        if trial.state == TrialState.RUNNING and before != TrialState.RUNNING:
            yield Fact(
                "trial.started", {"trial": trial.number, "config": trial.config, "epoch": trial.epochs}
            )
        known = self.trials.get(trial.number)
        if trial.epochs and (known is None or known[1] != trial.epochs) and before not in TRIAL_ENDED:
            yield Fact(
                "trial.report", {"trial": trial.number, "epoch": trial.epochs, "metric": row["metric"]}
            )
        if trial.ended and trial.state != TrialState.CUT and before not in TRIAL_ENDED - {TrialState.CUT}:
            yield Fact("trial.finished", row)

    def _write_containers(self, brain: Brain, labels: dict[str, Device]) -> list[Fact]:
        containers = brain.state.containers.values()
        changed = [c for c in containers if self.containers.get(c.id) != _container_signature(c)]
        Container.objects.bulk_create(
            [_container_row(self.job, brain, container, labels) for container in changed],
            update_conflicts=True,
            unique_fields=["job", "run"],
            update_fields=CONTAINER_FIELDS,
        )
        facts = []
        for container in changed:
            data = _container_data(container)
            if container.id not in self.containers:
                facts.append(Fact("container.started", data))
            if not container.active:
                facts.append(Fact("container.ended", data))
        self._next.append((self.containers, {c.id: _container_signature(c) for c in changed}))
        return facts

    def _write_targets(self, brain: Brain) -> list[Fact]:
        changed = [t for t in brain.targets if self.targets.get(t.key) != _target_signature(t)]
        if not changed:
            return []
        name = brain.state.facts.metric
        numbers = {
            t.number: t.pk for t in Trial.objects.filter(job=self.job, number__in=[t.trial for t in changed])
        }
        Target.objects.bulk_create(
            [_target_row(self.job, target, numbers[target.trial], name) for target in changed],
            update_conflicts=True,
            unique_fields=["job", "trial", "variant"],
            update_fields=TARGET_FIELDS,
        )
        facts = [fact for target in changed for fact in self._target_facts(target)]
        self._next.append((self.targets, {t.key: _target_signature(t) for t in changed}))
        return facts

    def _target_facts(self, target: BrainTarget) -> Iterator[Fact]:
        before = (self.targets.get(target.key) or ("waiting",))[0]
        if target.state == "running" and before != "running":
            yield Fact("target.started", target.row())
        if target.state in {"completed", "failed", "stopped"} and before != target.state:
            yield Fact("target.finished", target.row())

    def new_models(self, brain: Brain) -> Iterator[tuple[str, Key]]:
        """Yield path and key of models that are not in the artifact store yet."""
        for target in brain.targets:
            if target.model and target.state == "completed" and target.key not in self.artifacts:
                yield target.model, target.key
        best = brain.best()
        if (
            best
            and best["model"]
            and not brain.state.transfers
            and brain.finished
            and (best["trial"], 0) not in self.artifacts
        ):
            yield best["model"], (best["trial"], 0)

    def stored(self, key: Key, artifact: Artifact) -> None:
        """Remember a stored model and link it to its target."""
        rows = Target.objects.filter(job=self.job, trial__number=key[0], variant=key[1])
        rows.update(model=artifact)
        self._next.append((self.artifacts, {key: artifact}))

    def models(self) -> dict[Key, str]:
        """Return key of a target -> artifact id, those of the present turn included."""
        fresh = [changes for table, changes in self._next if table is self.artifacts]
        known = {**self.artifacts, **{key: a for changes in fresh for key, a in changes.items()}}
        return {key: str(artifact.pk) for key, artifact in known.items()}


def leader_of(brain: Brain) -> dict[str, Any] | None:
    """Return the best trial so far, by the metric of its surrogate where it is one."""
    order = brain.state.best_order()
    if not order:
        return None
    trial = brain.trials[order[0]]
    return {
        "trial": trial.number,
        "metric": finite(trial.metric(brain.state.facts.metric)),
        "config": trial.config,
    }


def finite(value: float | None) -> float | None:
    """Return a number, or None for one that JSON and the database refuse."""
    return value if value is not None and math.isfinite(value) else None


def curve_of(metrics: dict[int, dict[str, float | None]], name: str) -> list[list[float | int | None]]:
    """Return [[epoch, metric], ...] in order; None where it was not finite."""
    return [[epoch, finite(metrics[epoch].get(name))] for epoch in sorted(metrics) if name in metrics[epoch]]


def _trial_signature(trial: BrainTrial) -> Signature:
    return (str(trial.state), trial.epochs, trial.reason, round(trial.device_seconds, 3))


def _target_signature(target: BrainTarget) -> Signature:
    return (target.state, target.epochs, target.metric, target.model, *target.devices)


def _container_signature(container: BrainContainer) -> Signature:
    return (container.end_s, container.outcome, container.epoch)


def _container_data(container: BrainContainer) -> dict[str, Any]:
    return {
        "container": container.id,
        "trials": list(container.trials),
        "device": container.device,
        "start_s": container.start_s,
        "end_s": container.end_s,
        "outcome": container.outcome,
        "note": container.note,
    }


def _container_row(job: Job, brain: Brain, container: BrainContainer, labels: dict[str, Device]) -> Container:
    spent = {number: brain.trials[number].spent.get(container.id, 0.0) for number in container.trials}
    return Container(
        job=job,
        run=container.id,
        trials=list(container.trials),
        batch_size=json.loads(container.shape).get("batch_size"),
        device=labels.get(container.device),
        device_label=container.device,
        from_epoch=container.from_epoch,
        start_s=container.start_s,
        end_s=container.end_s,
        outcome=container.outcome or "",
        note=(container.note or "")[:1000],
        epochs=container.epoch,
        spent={str(number): round(seconds, 4) for number, seconds in spent.items()},
    )


def _target_row(job: Job, target: BrainTarget, trial_id: Any, name: str) -> Target:
    return Target(
        job=job,
        trial_id=trial_id,
        variant=target.variant,
        values=dict(target.values),
        state=target.state,
        metric=finite(target.metric),
        curve=curve_of(target.metrics, name),
        started_after_finished_fraction=target.started_fraction,
        device_label=target.device or "",
        beside=list(target.beside),
        note=(target.note or "")[:1000],
        start_s=target.start_s,
        end_s=target.end_s,
        reason=(target.reason or "")[:1000],
    )
