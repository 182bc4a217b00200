"""``hydro.scheduler``: PyTorch's own learning-rate schedulers, one per trial."""

import copy
import functools
import inspect
from collections.abc import Sequence
from typing import Any

from torch.optim import lr_scheduler

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.optimizers.hyperparameters import per_trial
from tuning.core.hydro.optimizers.settings import TrialSettings
from tuning.core.hydro.optimizers.trial_optimizer import TrialOptimizer

_SUPPORTED: tuple[Any, ...] = (
    lr_scheduler.StepLR,
    lr_scheduler.MultiStepLR,
    lr_scheduler.ConstantLR,
    lr_scheduler.LinearLR,
    lr_scheduler.ExponentialLR,
    lr_scheduler.PolynomialLR,
    lr_scheduler.CosineAnnealingLR,
    lr_scheduler.CosineAnnealingWarmRestarts,
    lr_scheduler.OneCycleLR,
    lr_scheduler.LambdaLR,
    lr_scheduler.MultiplicativeLR,
    lr_scheduler.ReduceLROnPlateau,
)
_COMPOSED: tuple[Any, ...] = (lr_scheduler.SequentialLR, lr_scheduler.ChainedScheduler)

# Settings whose one value is itself a list; per trial they are a list of lists.
_LISTS = ("milestones",)


class TrialScheduler:
    """F schedulers of PyTorch that move in step, each over the settings of its own trial.

    Each trial's learning rate is therefore exactly what PyTorch computes for it. ``opt.schedulers`` lists the
    schedulers of an optimizer; defusing and merging carry them on.
    """

    def __init__(self, optimizer: TrialOptimizer, each: Sequence[Any]) -> None:
        self.optimizer = optimizer
        self.each = list(each)

    def step(self, metrics: Any = None) -> None:
        """Advance every trial; ``metrics`` has one value per trial for ``ReduceLROnPlateau``."""
        if not isinstance(self.each[0], lr_scheduler.ReduceLROnPlateau):
            for scheduler in self.each:
                scheduler.step()
            return
        if metrics is None or len(metrics) != len(self.each):
            raise FuseError("ReduceLROnPlateau needs metrics: give step() one value per trial")
        for scheduler, metric in zip(self.each, metrics, strict=True):
            scheduler.step(float(metric))

    def get_last_lr(self) -> list[float]:
        """The learning rate of every trial."""
        return [float(lr) for lr in self.optimizer.values("lr")]

    def state(self) -> list[dict[str, Any]]:
        """One plain dictionary per trial."""
        return [_plain(scheduler.state_dict()) for scheduler in self.each]

    def load_state(self, states: Sequence[dict[str, Any]]) -> None:
        """Continue from what ``state`` returned, for as many trials."""
        if len(states) != len(self.each):
            raise FuseError(f"schedules of {len(states)} trials cannot continue {len(self.each)} trials")
        for scheduler, state in zip(self.each, states, strict=True):
            scheduler.load_state_dict(_restored(scheduler, state))


def scheduler(kind: Any, optimizer: TrialOptimizer, **settings: Any) -> TrialScheduler:
    """A learning-rate scheduler of the given PyTorch class for every trial of an optimizer.

    Each setting is one value for all trials or a list with one per trial. A setting that is itself a list
    (``milestones``) is per trial as a list of lists. ``SequentialLR`` and ``ChainedScheduler`` take
    ``schedulers``, a list of what this function returned for the same optimizer.

    Raises ``FuseError`` for another class, a list of the wrong length or settings that PyTorch refuses.
    """
    name = getattr(kind, "__name__", repr(kind))
    if not isinstance(optimizer, TrialOptimizer):
        raise FuseError("hydro.scheduler needs an optimizer made by hydro.optimizer")
    if kind in _COMPOSED:
        made = TrialScheduler(optimizer, _composed(kind, optimizer, settings))
    elif kind in _SUPPORTED:
        made = TrialScheduler(optimizer, _simple(kind, optimizer, settings))
    else:
        known = ", ".join(each.__name__ for each in (*_SUPPORTED, *_COMPOSED))
        raise FuseError(f"scheduler {name} is not supported: use one of {known}")
    optimizer.schedulers.append(made)
    return made


def _simple(kind: Any, optimizer: TrialOptimizer, settings: dict[str, Any]) -> list[Any]:
    known = inspect.signature(kind).parameters
    for key in settings:
        if key not in known:
            raise FuseError(f"{kind.__name__} has no setting {key!r}: it takes {', '.join(list(known)[1:])}")
    columns = {key: _column(key, value, optimizer.trials) for key, value in settings.items()}
    made = []
    for trial, trial_settings in enumerate(optimizer.settings):
        row = {key: column[trial] for key, column in columns.items()}
        made.append(_made(kind, trial, functools.partial(kind, trial_settings, **row)))
    return made


def _column(name: str, value: Any, trials: int) -> list[Any]:
    if name in _LISTS and isinstance(value, list) and not any(isinstance(v, list | tuple) for v in value):
        return [value] * trials
    return per_trial(name, value, trials)


def _composed(kind: Any, optimizer: TrialOptimizer, settings: dict[str, Any]) -> list[Any]:
    parts = settings.pop("schedulers", None)
    if not isinstance(parts, list | tuple) or not all(isinstance(part, TrialScheduler) for part in parts):
        raise FuseError(f"{kind.__name__} needs schedulers: a list of schedulers made by hydro.scheduler")
    if any(part.optimizer is not optimizer for part in parts):
        raise FuseError(f"{kind.__name__} needs schedulers that were made for the same optimizer")
    columns = {key: _column(key, value, optimizer.trials) for key, value in settings.items()}
    made = []
    for trial, trial_settings in enumerate(optimizer.settings):
        row = {key: column[trial] for key, column in columns.items()}
        inner = [part.each[trial] for part in parts]
        if kind is lr_scheduler.SequentialLR:
            make = functools.partial(kind, trial_settings, inner, **row)
        else:
            make = functools.partial(kind, inner, optimizer=trial_settings, **row)
        made.append(_made(kind, trial, make))
    # The composed schedule steps its parts; they are no schedules of the optimizer any more.
    optimizer.schedulers[:] = [item for item in optimizer.schedulers if item not in parts]
    return made


def _made(kind: Any, trial: int, make: Any) -> Any:
    try:
        return make()
    except (ValueError, TypeError, KeyError) as error:
        raise FuseError(f"{kind.__name__} of trial {trial}: {error}") from None


def carried_on(scheduler: Any, old: TrialSettings, new: TrialSettings, memo: dict[int, Any]) -> Any:
    """A copy of one trial's scheduler over the copied settings of that trial."""
    memo[id(old)] = new
    return copy.deepcopy(scheduler, memo)


def _plain(value: Any) -> Any:
    """Plain containers and numbers only, so that ``torch.load(weights_only=True)`` reads them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if not callable(item)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _restored(scheduler: Any, state: dict[str, Any]) -> dict[str, Any]:
    """A saved state in the types that the scheduler itself uses."""
    own = scheduler.state_dict()
    return {
        key: type(own[key])(value) if isinstance(own.get(key), dict) and isinstance(value, dict) else value
        for key, value in state.items()
    }
