"""How the training of one parameter changes with width: the muP table, per tensor.

Every factor is *surrogate relative to target*: the user's learning rate and weight decay belong to the
target, and the surrogate multiplies them. With ratios ``r = target width / surrogate width`` of the
dimension a weight reads from (``fan_in_ratio``) and writes to (``fan_out_ratio``):

=========  ====================  =========================  ==================
weight     SGD learning rate     Adam, AdamW learning rate  initial variance
=========  ====================  =========================  ==================
hidden     r_in / r_out          r_in                       r_in
input      1 / r_out             1                          1
vector     1 / r_out             1                          constant
output     1 / r_in              1                          zero, or 1 inside
=========  ====================  =========================  ==================

An output weight is in multiplier form: its input passes a ``Scale(r_in)`` first. A vector is a bias, a
norm's gain, a depthwise kernel, a position table. Weight decay is divided by the same factor, because
PyTorch's optimizers shrink a weight by ``lr * weight_decay`` and that product must not depend on width.

Sources: Yang et al., "Tensor Programs V", arXiv 2203.03466, table 8; Yang, Simon and Bernstein, "A Spectral
Condition for Feature Learning", arXiv 2310.17813 (SGD lr in proportion to fan_out / fan_in).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import nn

from tuning.core.hydro.errors import HydroError

Role = Literal["input", "hidden", "output", "embedding", "tied", "bias", "norm", "vector", "fixed"]
Scheme = Literal["mup", "standard", "hydro"]

OPTIMIZERS: dict[str, str] = {"sgd": "sgd", "adam": "adam", "adamw": "adam"}
"""Optimizer name to family; the members of a family share their learning-rate factors."""

_ATTRIBUTE = "_hydro_parametrization"


@dataclass(frozen=True)
class ParameterRule:
    """Factors by which the surrogate's optimizer multiplies the user's hyperparameters for one tensor.

    ``fan_in_ratio`` and ``fan_out_ratio`` are real ratios (target width / surrogate width, at least 1), also
    where the division was uneven. ``adam_eps`` multiplies Adam's epsilon and differs from 1 under depth
    scaling only.
    """

    role: Role
    fan_in_ratio: float = 1.0
    fan_out_ratio: float = 1.0
    sgd_lr: float = 1.0
    adam_lr: float = 1.0
    adam_eps: float = 1.0

    def lr_multiplier(self, family: str) -> float:
        """Factor on the learning rate for ``sgd``, ``adam`` or ``adamw``."""
        return self.sgd_lr if family_named(family) == "sgd" else self.adam_lr

    def weight_decay_multiplier(self, family: str) -> float:
        """Factor on PyTorch's ``weight_decay`` that keeps ``lr * weight_decay`` what the user wrote.

        Exact for SGD and for AdamW. Adam adds its decay to the gradient and then normalises both, so there it
        only is the nearest thing (microsoft/mup, pull request 73).
        """
        return 1.0 / self.lr_multiplier(family)


@dataclass(frozen=True)
class Parametrization:
    """The rules of a whole module, by parameter name, and the optimizer that they were made for."""

    rules: Mapping[str, ParameterRule]
    optimizer: str
    scheme: Scheme = "mup"
    scaling: float = 1.0

    @property
    def family(self) -> str:
        return family_named(self.optimizer)


def family_named(optimizer: str) -> str:
    """``sgd`` or ``adam`` for the name of an optimizer.

    Raises ``HydroError`` for an optimizer whose width rules are not known.
    """
    family = OPTIMIZERS.get(optimizer.lower()) if isinstance(optimizer, str) else None
    if family is None:
        known = ", ".join(OPTIMIZERS)
        raise HydroError(f"optimizer {optimizer!r} has no width rules here: use one of {known}")
    return family


def attach_parametrization(module: nn.Module, parametrization: Parametrization) -> None:
    """Let ``module`` carry its rules; they survive ``copy.deepcopy`` and pickling, and add no state."""
    object.__setattr__(module, _ATTRIBUTE, parametrization)


def attach_rules(module: nn.Module, rules: Mapping[str, ParameterRule], optimizer_family: str) -> None:
    """Let ``module`` carry ``rules`` (by the names of ``named_parameters``) for one family of optimizers."""
    attach_parametrization(module, Parametrization(dict(rules), optimizer_family))


def parametrization_of(module: nn.Module) -> Parametrization | None:
    """What ``shrink`` attached to this module, or None for a module that was never shrunk."""
    found = module.__dict__.get(_ATTRIBUTE)
    return found if isinstance(found, Parametrization) else None


def rules_of(module: nn.Module) -> dict[str, ParameterRule] | None:
    """The rules by parameter name, or None for a module that was never shrunk."""
    found = parametrization_of(module)
    return None if found is None else dict(found.rules)


def optimizer_family_of(module: nn.Module) -> str | None:
    """``sgd`` or ``adam``: whose learning-rate factors apply; None for a module that was never shrunk."""
    found = parametrization_of(module)
    return None if found is None else found.family


def rule_for(role: Role, r_in: float, r_out: float, scheme: Scheme) -> ParameterRule:
    """The factors of one tensor from its role and its two width ratios."""
    if scheme == "standard":
        sgd = adam = 1.0
    elif role == "hidden":
        sgd, adam = (r_in if scheme == "hydro" else r_in / r_out), r_in
    elif role in ("output", "tied"):
        sgd, adam = 1.0 / r_in, 1.0
    else:
        sgd, adam = 1.0 / r_out, 1.0
    return ParameterRule(role, r_in, r_out, sgd_lr=sgd, adam_lr=adam)
