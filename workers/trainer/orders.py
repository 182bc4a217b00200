"""What a device process is told to do, and how it asks its driver what to do next.

Orders are plain data: they can be pickled, sent to a Ray actor or through a pipe. Events (see
`tuning.core.study.events`) go the other way through a `Reporter`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tuning.core.study.actions import Member
from tuning.core.study.compiling import CompileChance
from tuning.core.study.events import Event

Reporter = Callable[[Event], None]


@dataclass(frozen=True)
class Setting:
    """What all runs of a study share. `folder` holds checkpoints and models and must outlive the process.

    `data_seed` fixes the sample order of every epoch; `threads` is the number of CPU threads of a run.
    """

    workload: str
    folder: str
    data_seed: int
    device: str = "cpu"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    scaling: int = 1
    parametrization: str = "mup"
    checkpoint_every: int = 1
    threads: int | None = None


@dataclass(frozen=True)
class ContainerOrder:
    """Train `members` together from `from_epoch` to `until_epoch`, waiting for a verdict at every rung.

    `fused=False` trains them one after the other in the same process. `keep_models` writes the weights of
    every trial that reaches the end (the trials of an unscaled study are full models). `compiling` None keeps
    every step eager.
    """

    run: str
    setting: Setting
    members: tuple[Member, ...]
    from_epoch: int
    until_epoch: int
    rungs: tuple[int, ...] = ()
    fused: bool = True
    keep_models: bool = False
    compiling: CompileChance | None = None


@dataclass(frozen=True)
class Seat:
    """One process's place among those that train a target together.

    All meet at the store at `host` and `port`; `address` is where this one listens for the others.
    """

    rank: int
    ranks: int
    host: str
    port: int
    address: str = "127.0.0.1"


@dataclass(frozen=True)
class TargetOrder:
    """Train the full-width model of one configuration and write it as safetensors.

    With a `seat` the target trains data-parallel, and this order is for one of its ranks.
    """

    run: str
    setting: Setting
    trial: int
    config: Mapping[str, Any]
    seed: int
    epochs: int
    checkpoint: str | None = None
    variant: int = 0
    compiling: CompileChance | None = None
    seat: Seat | None = None


@dataclass(frozen=True)
class ProfileOrder:
    """Measure shapes: for each an example configuration, and how many trials of it are waiting.

    `epochs` is how many a trial is expected to train: probing takes a share of that at most.
    """

    run: str
    setting: Setting
    shapes: Mapping[str, Mapping[str, Any]]
    trials: Mapping[str, int]
    epochs: float = 1
    full_width: bool = False


@dataclass(frozen=True)
class TransferOrder:
    """Compare widths: the activations of the workload's model, and how `members` (of one shape) rank."""

    run: str
    setting: Setting
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Verdict:
    """What a container does next: leave some trials behind, and perhaps pause with a checkpoint."""

    stop: tuple[int, ...] = ()
    pause: bool = False


class Control(Protocol):
    """How a run learns what its driver wants."""

    def verdict(self, epoch: int) -> Verdict:
        """Wait for the verdict on a rung; the run has just reported that epoch."""

    def pending(self) -> Verdict:
        """Return, without waiting, what was asked for since the last epoch."""

    def stopped(self) -> bool:
        """Return whether the run must end at once; asked between batches."""


class GoOn:
    """A driver that never interferes."""

    def verdict(self, epoch: int) -> Verdict:
        """Let everybody through."""
        return Verdict()

    def pending(self) -> Verdict:
        """Ask for nothing."""
        return Verdict()

    def stopped(self) -> bool:
        """Never stop."""
        return False


class Stopped(Exception):
    """The driver ended the run between two batches."""


class Parted(Exception):
    """The other ranks of a target cannot be reached any more, and none of them has said why."""
