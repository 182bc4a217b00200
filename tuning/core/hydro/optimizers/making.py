"""``hydro.optimizer``: from a PyTorch optimizer class to one that steps every trial."""

from typing import Any

import torch
from torch import nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.fused_module import FusedModule
from tuning.core.hydro.optimizers.adam import TrialAdam
from tuning.core.hydro.optimizers.hyperparameters import (
    ADAM_DEFAULTS,
    ADAMW_DEFAULTS,
    SGD_DEFAULTS,
    trial_settings,
)
from tuning.core.hydro.optimizers.sgd import TrialSGD
from tuning.core.hydro.optimizers.targets import targets_of
from tuning.core.hydro.optimizers.trial_optimizer import TrialOptimizer
from tuning.core.hydro.rules import optimizer_family_of

_KINDS: dict[Any, tuple[type[TrialOptimizer], dict[str, Any]]] = {
    torch.optim.SGD: (TrialSGD, SGD_DEFAULTS),
    torch.optim.Adam: (TrialAdam, ADAM_DEFAULTS),
    torch.optim.AdamW: (TrialAdam, ADAMW_DEFAULTS),
}


def optimizer(kind: type[torch.optim.Optimizer], module: nn.Module, **hyperparameters: Any) -> TrialOptimizer:
    """An optimizer of the given PyTorch class for a fused, an unfused or a plain module.

    A hyperparameter is one value for all trials or a list with one per trial; a tuple such as ``betas`` is
    one value. On a shrunk model the width rules multiply learning rates and weight decays per tensor. Each
    trial is stepped as PyTorch would step it alone.

    Raises ``FuseError`` for another optimizer, a list of the wrong length, a value out of range, or a
    surrogate that was made for another family of optimizers.
    """
    if kind not in _KINDS:
        name = getattr(kind, "__name__", repr(kind))
        raise FuseError(f"optimizer {name} is not supported: use torch.optim.SGD, Adam or AdamW")
    if not isinstance(module, nn.Module):
        raise FuseError(
            f"hydro.optimizer got a {type(module).__name__}: give the module itself, not its parameters"
        )
    made, defaults = _KINDS[kind]
    template = module.blueprint.template if isinstance(module, FusedModule) else module
    family = optimizer_family_of(template)
    if family is not None and family != made.family:
        raise FuseError(
            f"this surrogate was shrunk for {family} and is to be trained by {kind.__name__}, whose learning "
            f"rates scale otherwise: shrink it with optimizer={made.family!r}"
        )
    targets = targets_of(module)
    if not targets:
        raise FuseError("the module has no parameter that requires a gradient: there is nothing to train")
    trials = module.trials if isinstance(module, FusedModule) else 1
    return made(module, targets, trial_settings(kind.__name__, defaults, hyperparameters, trials))
