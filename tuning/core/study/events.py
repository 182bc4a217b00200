"""What happens to a study. Every event may arrive twice or late; the second time it changes nothing.

A *run* is one container, target or profile on one device, or a target on several; its id is the one of the
action that started it.
Seconds are cumulative within a run. Times `at_s` are seconds since the study began.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain data, its kind under `event`."""
        values = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        return {"event": type(self).__name__, **values}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class DevicesChanged(Event):
    """The devices this study may use from now on."""

    devices: tuple[str, ...]


@dataclass(frozen=True)
class RoomChanged(Event):
    """How long a training step may take on devices that are lent for moments only, in seconds by device.

    Devices that are not named, those of the study's own among them, take any step.
    """

    step_s: Mapping[str, float]


@dataclass(frozen=True)
class Profiled(Event):
    """A profile run ended: `ShapeProfile.to_json` of every measured shape, the run's wall seconds.

    `target_step_s` is the measured seconds of one full-width step by shape, where it was asked for,
    `target_half_s` those on half a batch, `target_bytes` the size of its gradients.
    """

    run: str
    at_s: float
    profiles: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
    target_step_s: Mapping[str, float] = field(default_factory=dict)
    target_half_s: Mapping[str, float] = field(default_factory=dict)
    target_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TransferWanted(Event):
    """Somebody asked for a transfer report; it is made on the next free device, again if there is one."""


@dataclass(frozen=True)
class TransferChecked(Event):
    """A transfer check ended: its report as plain data (see `workers.trainer.transfer`), its wall seconds."""

    run: str
    at_s: float
    report: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Reported(Event):
    """A container finished an epoch: metrics and cumulative device seconds of each of its trials."""

    run: str
    epoch: int
    metrics: Mapping[int, Mapping[str, float | None]]
    device_seconds: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpointed(Event):
    """Every trial running in the container can continue from this file, at this epoch."""

    run: str
    epoch: int
    path: str


@dataclass(frozen=True)
class TrialFailed(Event):
    """One trial of a container failed; the others go on."""

    run: str
    trial: int
    reason: str


@dataclass(frozen=True)
class ModelSaved(Event):
    """A trial of an unscaled study (its trials are full models) left its weights in this file."""

    run: str
    trial: int
    path: str


@dataclass(frozen=True)
class ContainerEnded(Event):
    """A container left its device. `outcome`: `finished` (its last epoch, or the function returned),
    `paused` (checkpointed at `epoch` as asked) or `stopped` (as asked, or nobody left in it)."""

    run: str
    at_s: float
    outcome: str
    epoch: int = 0
    path: str | None = None
    repacking_s: float = 0.0
    note: str | None = None


@dataclass(frozen=True)
class RunLost(Event):
    """The process of a container, target or profile is gone, or its device is.

    `broken` says that the process lives and could not carry out the order at all: then its checkpoint is not
    tried again, and a trial that is alone in such a container has failed. `taken` says that the device was
    needed for somebody else: that is nobody's fault and counts against no trial.
    """

    run: str
    at_s: float
    reason: str
    broken: bool = False
    taken: bool = False


@dataclass(frozen=True)
class CompileDecided(Event):
    """A run decided whether its steps are compiled (see `workers.trainer.compiling`).

    `decision` holds `model`, `shape`, `device`, `torch` and `threads` (what it is about), `outcome` (kept,
    dropped, not tried, failed or off), `reason`, `steps_left`, and what was measured: `eager_step_s`,
    `compiled_step_s`, `compile_s`, `break_even_steps`. `seconds` is the wall time this run spent compiling.
    """

    run: str
    decision: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class TargetReported(Event):
    """A target finished an epoch."""

    run: str
    epoch: int
    metrics: Mapping[str, float | None]
    device_seconds: float = 0.0


@dataclass(frozen=True)
class TargetCheckpointed(Event):
    """A target can continue from this file."""

    run: str
    epoch: int
    path: str


@dataclass(frozen=True)
class TargetEnded(Event):
    """A target left its devices.

    `state`: `completed`, `failed`, `cut` where it was stopped on the way, or `paused` as asked, with a
    checkpoint at the end of an epoch.
    """

    run: str
    at_s: float
    state: str
    metric: float | None = None
    model: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Cut(Event):
    """The study ends now with what it has; `reason` is `deadline` or `interrupted`."""

    reason: str


@dataclass(frozen=True)
class Resumed(Event):
    """A study that was cut goes on; nothing of it is running."""


EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        DevicesChanged,
        RoomChanged,
        Profiled,
        TransferWanted,
        TransferChecked,
        Reported,
        Checkpointed,
        TrialFailed,
        ModelSaved,
        ContainerEnded,
        CompileDecided,
        RunLost,
        TargetReported,
        TargetCheckpointed,
        TargetEnded,
        Cut,
        Resumed,
    )
}


def event_from_json(document: Mapping[str, Any]) -> Event:
    """Return the event that `Event.to_json` wrote."""
    values = {name: value for name, value in document.items() if name != "event"}
    for name in ("devices", "profiles"):
        if name in values:
            values[name] = tuple(values[name])
    if document["event"] == "Reported":
        for name in ("metrics", "device_seconds"):
            values[name] = {int(trial): value for trial, value in values[name].items()}
    return EVENTS[document["event"]](**values)
