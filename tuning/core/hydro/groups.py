"""An ordinary PyTorch optimizer under width rules: one parameter group per tensor."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tuning.core.hydro.rules import ParameterRule, parametrization_of

_CLASSES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def parameter_groups(
    module: nn.Module, lr: float, weight_decay: float = 0.0, eps: float = 1e-8
) -> list[dict[str, Any]]:
    """Groups for a ``torch.optim`` class: the user's ``lr`` and ``weight_decay`` times each tensor's factors.

    A module without rules gets the user's values unchanged. Tensors with equal factors share a group. A group
    carries ``eps`` where depth scaling changes it.
    """
    found = parametrization_of(module)
    family = found.family if found is not None else "sgd"
    rules = found.rules if found is not None else {}
    groups: dict[tuple[float, float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        rule = rules.get(name, ParameterRule("fixed"))
        factors = (rule.lr_multiplier(family), rule.weight_decay_multiplier(family), rule.adam_eps)
        groups.setdefault(factors, []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": lr * faster,
            "weight_decay": weight_decay * stronger,
            **({"eps": eps * wider} if family == "adam" else {}),
        }
        for (faster, stronger, wider), parameters in groups.items()
    ]


def plain_optimizer(
    module: nn.Module, name: str, lr: float, *, weight_decay: float = 0.0, **settings: Any
) -> torch.optim.Optimizer:
    """``torch.optim.SGD``, ``Adam`` or ``AdamW`` over ``parameter_groups``."""
    eps = settings.pop("eps", 1e-8)
    return _CLASSES[name](parameter_groups(module, lr, weight_decay, eps), lr=lr, **settings)
