"""What a study wants done. The driver does it and answers with events."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Action:
    """Something for the driver to do."""

    def to_json(self) -> dict[str, Any]:
        """Return the action as plain data, its kind under `action`."""
        return {"action": type(self).__name__, **asdict(self)}


@dataclass(frozen=True)
class Member:
    """A trial as a container needs it; `checkpoint` is a file to continue from, or None."""

    trial: int
    config: dict[str, Any]
    seed: int
    checkpoint: str | None = None


@dataclass(frozen=True)
class Profile(Action):
    """Measure these shapes on a device.

    For each shape a sample configuration and how many trials of it are waiting; `epochs` is how many a trial
    is expected to train. `full_width` asks for the step time of the full model, too.
    """

    run: str
    device: str
    shapes: dict[str, dict[str, Any]]
    trials: dict[str, int]
    epochs: float
    full_width: bool


@dataclass(frozen=True)
class CheckTransfer(Action):
    """Compare widths on a device: a coordinate check, and the ranking of these configurations at two widths.

    All members are of one shape.
    """

    run: str
    device: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class StartContainer(Action):
    """Train these trials together on a device.

    All members continue from `from_epoch` (0: from scratch). After each epoch in `rungs` the container waits
    for a `Proceed`.
    """

    run: str
    device: str
    shape: str
    members: tuple[Member, ...]
    from_epoch: int
    until_epoch: int
    rungs: tuple[int, ...]
    fused: bool


@dataclass(frozen=True)
class Proceed(Action):
    """The verdict at a rung: stop some trials, then go on (or, with `pause`, checkpoint the rest and end)."""

    run: str
    epoch: int
    stop: tuple[int, ...]
    pause: bool


@dataclass(frozen=True)
class StopTrials(Action):
    """Stop some trials of a container at its next epoch."""

    run: str
    trials: tuple[int, ...]


@dataclass(frozen=True)
class StopRun(Action):
    """End a container or target: with `pause` at its next epoch with a checkpoint, otherwise at once."""

    run: str
    pause: bool


@dataclass(frozen=True)
class StartTarget(Action):
    """Train the full-width model of a trial's configuration; with devices `beside` its own, data-parallel."""

    run: str
    device: str
    trial: int
    config: dict[str, Any]
    seed: int
    epochs: int
    checkpoint: str | None
    variant: int = 0
    beside: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """All of its devices, that of the first rank first."""
        return (self.device, *self.beside)


@dataclass(frozen=True)
class Finish(Action):
    """The study is over: `completed`, `failed` (no valid trial, or no target) or `cut`."""

    state: str
    reason: str | None
