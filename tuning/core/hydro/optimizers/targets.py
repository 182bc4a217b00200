"""The parameters that an optimizer steps, and how the trials lie in them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuning.core.hydro.fused_module import FusedModule
from tuning.core.hydro.rules import ParameterRule, rules_of


@dataclass(frozen=True)
class Target:
    """One parameter: stacked ``(F, ...)`` in a fused module, plain ``(...)`` in an ordinary one (F = 1)."""

    name: str
    parameter: nn.Parameter
    stacked: bool
    rule: ParameterRule | None

    @property
    def trial_shape(self) -> tuple[int, ...]:
        shape = tuple(self.parameter.shape)
        return shape[1:] if self.stacked else shape

    @property
    def broadcast(self) -> tuple[int, ...]:
        """Shape of a vector ``(F,)`` that broadcasts against the parameter."""
        dims = self.parameter.dim()
        if self.stacked:
            return (-1, *(1,) * (dims - 1))
        return (1,) * dims

    def trial_sum(self) -> Tensor:
        """The gradient summed within each trial, (F,)."""
        grad = self.parameter.grad
        assert grad is not None
        if not self.stacked:
            return grad.sum().view(1)
        return grad.sum(tuple(range(1, grad.dim()))) if grad.dim() > 1 else grad

    def trial_norm(self, norm_type: float) -> Tensor:
        """The norm of the gradient within each trial, (F,)."""
        grad = self.parameter.grad
        assert grad is not None
        if not self.stacked:
            return torch.linalg.vector_norm(grad, norm_type).view(1)
        dims = tuple(range(1, grad.dim()))
        return torch.linalg.vector_norm(grad, norm_type, dims) if dims else grad.abs()


def targets_of(module: nn.Module) -> list[Target]:
    """The trainable parameters of a fused, an unfused or a plain module, with their width rules if shrunk."""
    fused = isinstance(module, FusedModule)
    rules = rules_of(module.blueprint.template if isinstance(module, FusedModule) else module) or {}
    return [
        Target(name, parameter, fused, rules.get(name))
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    ]
