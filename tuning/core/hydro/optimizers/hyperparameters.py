"""Hyperparameters of F trials: one value for all or a list with one per trial, checked as PyTorch does."""

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tuning.core.hydro.errors import FuseError

SGD_DEFAULTS: dict[str, Any] = {
    "lr": 1e-3,
    "momentum": 0.0,
    "dampening": 0.0,
    "weight_decay": 0.0,
    "nesterov": False,
    "maximize": False,
}
ADAM_DEFAULTS: dict[str, Any] = {
    "lr": 1e-3,
    "betas": (0.9, 0.999),
    "eps": 1e-8,
    "weight_decay": 0.0,
    "amsgrad": False,
    "maximize": False,
    "decoupled_weight_decay": False,
}
ADAMW_DEFAULTS: dict[str, Any] = {**ADAM_DEFAULTS, "weight_decay": 1e-2, "decoupled_weight_decay": True}

# How PyTorch carries out a step; here there is one way, and it is the fast one.
_IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable")
_FLAGS = ("nesterov", "maximize", "amsgrad", "decoupled_weight_decay")


def per_trial(name: str, value: Any, trials: int) -> list[Any]:
    """A value for each trial: a list has one per trial, everything else is one value for all."""
    if not isinstance(value, list):
        return [value] * trials
    if len(value) != trials:
        raise FuseError(
            f"{name} has {len(value)} values for {trials} trials: give one value or one per trial"
        )
    return list(value)


def trial_settings(
    kind: str, defaults: Mapping[str, Any], given: Mapping[str, Any], trials: int
) -> list[dict[str, Any]]:
    """The settings of each trial from the keyword arguments of ``hydro.optimizer``.

    Raises ``FuseError`` for an unknown name, a list of the wrong length or a value out of range.
    """
    rows: list[dict[str, Any]] = [dict(defaults) for _ in range(trials)]
    for name, value in given.items():
        if name in _IMPLEMENTATION:
            if value and name in ("capturable", "differentiable"):
                raise FuseError(f"{name} is not supported by fused {kind}: leave it out")
            continue
        if name not in defaults:
            raise FuseError(f"{kind} has no hyperparameter {name!r}: it takes {', '.join(defaults)}")
        for trial, (row, item) in enumerate(zip(rows, per_trial(name, value, trials), strict=True)):
            row[name] = _checked(name, item, trial)
    for trial, row in enumerate(rows):
        if row.get("nesterov") and (row["momentum"] <= 0 or row["dampening"] != 0):
            raise FuseError(f"nesterov of trial {trial} needs a momentum above 0 and no dampening")
    return rows


def _at_least_zero(value: float) -> bool:
    return value >= 0.0


def _any_number(value: float) -> bool:
    return True


_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "lr": (_at_least_zero, "at least 0"),
    "momentum": (_at_least_zero, "at least 0"),
    "dampening": (_any_number, "a number"),
    "weight_decay": (_at_least_zero, "at least 0"),
    "eps": (_at_least_zero, "at least 0"),
}


def _checked(name: str, value: Any, trial: int) -> Any:
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise FuseError(f"{name} of trial {trial} is {value!r}: it is True or False")
        return value
    if name == "betas":
        if not isinstance(value, tuple) or len(value) != 2:
            raise FuseError(
                f"betas of trial {trial} is {value!r}: give a tuple of two numbers, or a list of tuples"
            )
        return tuple(
            _number(name, item, trial, lambda beta: 0.0 <= beta < 1.0, "from 0 up to 1") for item in value
        )
    inside, rule = _RANGES[name]
    return _number(name, value, trial, inside, rule)


def _number(name: str, value: Any, trial: int, inside: Callable[[float], bool], rule: str) -> float:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise FuseError(f"{name} of trial {trial} is {value!r}: give a number")
    number = float(value)
    if not math.isfinite(number) or not inside(number):
        raise FuseError(f"{name} of trial {trial} is {number:g}: it has to be {rule}")
    return number
