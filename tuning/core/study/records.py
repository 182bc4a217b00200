"""The rows a study keeps: trials, containers, targets."""

from dataclasses import dataclass, field, fields
from typing import Any

from tuning.core.states import TRIAL_ENDED, TrialState

Metrics = dict[str, float | None]


def _plain(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}


@dataclass
class Trial:
    """One configuration and what became of it.

    `epochs` is the last epoch whose result counts, `checkpoint_epoch` the one it can continue from.
    `spent` holds cumulative device seconds by run, so that a repeated report counts once. Only
    `StudyState.move` writes `state`.
    """

    number: int
    config: dict[str, Any]
    seed: int
    shape: str = ""
    state: TrialState = TrialState.WAITING
    epochs: int = 0
    metrics: dict[int, Metrics] = field(default_factory=dict)
    reason: str | None = None
    run: str | None = None
    checkpoint: str | None = None
    checkpoint_epoch: int = 0
    passed: list[int] = field(default_factory=list)
    held_at: int | None = None
    losses: int = 0
    spent: dict[str, float] = field(default_factory=dict)
    ended_order: int | None = None
    model: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more happens to the trial."""
        return self.state in TRIAL_ENDED

    @property
    def device_seconds(self) -> float:
        """The trial's share of the device time of every container it was in."""
        return sum(self.spent.values())

    def metric(self, name: str) -> float | None:
        """Return the metric of the last epoch that reported it; None where it was not finite."""
        # epochs are recorded in ascending order
        for metrics in reversed(self.metrics.values()):
            if name in metrics:
                return metrics[name]
        return None

    def row(self, name: str) -> dict[str, Any]:
        """Return the trial as a row of `trial_table`."""
        return {
            "trial": self.number,
            "config": self.config,
            "metric": self.metric(name),
            "epochs": self.epochs,
            "state": str(self.state),
            "reason": self.reason,
            "device_seconds": self.device_seconds,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the trial as plain data."""
        document = _plain(self)
        document["state"] = str(self.state)
        document["metrics"] = {str(epoch): values for epoch, values in self.metrics.items()}
        return document


def trial_from_json(document: dict[str, Any]) -> Trial:
    """Return the trial that `Trial.to_json` wrote."""
    values = dict(document)
    values["state"] = TrialState(values["state"])
    values["metrics"] = {int(epoch): dict(found) for epoch, found in values["metrics"].items()}
    return Trial(**values)


@dataclass
class Container:
    """Trials that run or ran together on one device, from `from_epoch` on.

    `awaiting` is the rung epoch at which the container waits for a verdict.
    """

    id: str
    shape: str
    trials: list[int]
    device: str
    from_epoch: int
    until_epoch: int
    start_s: float
    end_s: float | None = None
    awaiting: int | None = None
    epoch: int = 0
    pausing: bool = False
    outcome: str | None = None
    note: str | None = None

    @property
    def active(self) -> bool:
        """Whether the container still occupies its device."""
        return self.end_s is None

    def to_json(self) -> dict[str, Any]:
        """Return the container as plain data."""
        return _plain(self)


@dataclass
class Chore:
    """A run that trains nothing that is kept: `profile` or `check`, on one device, from `start_s` on."""

    run: str
    kind: str
    device: str
    start_s: float
    end_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the chore as plain data."""
        return _plain(self)


@dataclass
class Target:
    """A full-width model with the configuration of one trial.

    A `variant` above 0 is one of the second search: `values` replace what did not transfer. `beside` are the
    further devices of a data-parallel run, `note` says why there are so many. `pausing` is a run that was
    asked to pause, `paused` a target that has and goes on before anything else begins; `widened` is the
    attempt in which it was paused to get more devices, and `alone` forbids that.
    """

    trial: int
    variant: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    state: str = "waiting"  # waiting running completed failed stopped cut
    run: str | None = None
    device: str | None = None
    attempts: int = 0
    started_fraction: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    epochs: int = 0
    metrics: dict[int, Metrics] = field(default_factory=dict)
    metric: float | None = None
    model: str | None = None
    checkpoint: str | None = None
    reason: str | None = None
    spent: dict[str, float] = field(default_factory=dict)
    beside: list[str] = field(default_factory=list)
    note: str | None = None
    pausing: bool = False
    paused: bool = False
    widened: int = 0
    alone: bool = False

    @property
    def devices(self) -> list[str]:
        """All devices of its present or last run, that of the first rank first."""
        return [self.device, *self.beside] if self.device is not None else []

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from every other target of the study."""
        return (self.trial, self.variant)

    def row(self) -> dict[str, Any]:
        """Return the target as a row of `targets`."""
        return {
            "trial": self.trial,
            "variant": self.variant,
            "values": dict(self.values),
            "metric": self.metric,
            "started_after_finished_fraction": self.started_fraction,
            "state": self.state,
            "epochs": self.epochs,
            "reason": self.reason,
            "model": self.model,
            "device": self.device,
            "beside": list(self.beside),
            "note": self.note,
            "start_s": self.start_s,
            "end_s": self.end_s,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the target as plain data."""
        document = _plain(self)
        document["metrics"] = {str(epoch): values for epoch, values in self.metrics.items()}
        return document


def target_from_json(document: dict[str, Any]) -> Target:
    """Return the target that `Target.to_json` wrote."""
    values = dict(document)
    values["metrics"] = {int(epoch): dict(found) for epoch, found in values["metrics"].items()}
    return Target(**values)
