"""The outputs of F trials as the criterion of one trial sees them.

A criterion is the user's Python and may change from step to step (a weight that is annealed, say), so that it
is run anew each time rather than recorded. ``TrialBatch`` pretends to be the output of one trial,
``(N, ...)``, and lets the common losses and reshapes run once for all trials. Anything else raises
``NotCovered``.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tuning.core.hydro.families.criterion import cross_entropy, elementwise_loss, nll_loss
from tuning.core.hydro.nested import map_tensors


class NotCovered(Exception):
    """The criterion does something that ``TrialBatch`` does not know."""


class TrialBatch:
    """A tensor ``(F, N, ...)`` that looks like ``(N, ...)``."""

    __slots__ = ("whole",)

    def __init__(self, whole: Tensor) -> None:
        self.whole = whole

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        handler = _LOSSES.get(function)
        if handler is None:
            raise NotCovered
        return handler(*args, **(kwargs or {}))

    @property
    def shape(self) -> torch.Size:
        return self.whole.shape[1:]

    @property
    def dtype(self) -> torch.dtype:
        return self.whole.dtype

    @property
    def device(self) -> torch.device:
        return self.whole.device

    @property
    def ndim(self) -> int:
        return self.whole.dim() - 1

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return self.ndim

    def float(self) -> "TrialBatch":
        return TrialBatch(self.whole.float())

    def view(self, *sizes: Any) -> "TrialBatch":
        return self.reshape(*sizes)

    def reshape(self, *sizes: Any) -> "TrialBatch":
        wanted = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes
        return TrialBatch(self.whole.reshape(self.whole.shape[0], *wanted))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> "TrialBatch":
        return TrialBatch(self.whole.flatten(self._past(start_dim), self._past(end_dim)))

    def transpose(self, dim0: int, dim1: int) -> "TrialBatch":
        return TrialBatch(self.whole.transpose(self._past(dim0), self._past(dim1)))

    def squeeze(self, dim: int) -> "TrialBatch":
        return TrialBatch(self.whole.squeeze(self._past(dim)))

    def _past(self, dim: int) -> int:
        """A dimension of one trial as a dimension of the whole."""
        return dim % max(self.ndim, 1) + 1

    def __getattr__(self, name: str) -> Any:
        raise NotCovered

    def __bool__(self) -> bool:
        raise NotCovered


for _name in [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "pow",
    "neg",
    "matmul",
    "getitem",
    "iter",
    "len",
    "lt",
    "gt",
    "le",
    "ge",
]:

    def _refuse(self: TrialBatch, *args: Any) -> Any:
        raise NotCovered

    setattr(TrialBatch, f"__{_name}__", _refuse)


class TrialLosses(TrialBatch):
    """One number per trial, (F,), that looks like a scalar: weighted and added as criteria do."""

    __slots__ = ()

    def __add__(self, other: Any) -> "TrialLosses":
        return TrialLosses(self.whole + _numbers(other))

    __radd__ = __add__

    def __mul__(self, other: Any) -> "TrialLosses":
        return TrialLosses(self.whole * _numbers(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "TrialLosses":
        return TrialLosses(self.whole / _numbers(other))

    def mean(self) -> "TrialLosses":
        return self

    def sum(self) -> "TrialLosses":
        return self


def _numbers(other: Any) -> Any:
    if isinstance(other, TrialLosses):
        return other.whole
    if isinstance(other, int | float) or (isinstance(other, Tensor) and other.dim() == 0):
        return other
    raise NotCovered


def _predictions(input: Any, *others: Any) -> Tensor:
    """The whole tensor of the predictions, where only they differ between trials."""
    if type(input) is not TrialBatch or any(isinstance(other, TrialBatch) for other in others):
        raise NotCovered
    return input.whole


def _cross_entropy(
    input: Any,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> TrialLosses:
    whole = _predictions(input, target, weight)
    if whole.dim() < 3 or reduction == "none" or size_average is not None or reduce is not None:
        raise NotCovered
    return TrialLosses(cross_entropy(whole, target, weight, ignore_index, reduction, label_smoothing))


def _nll_loss(
    input: Any,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> TrialLosses:
    whole = _predictions(input, target, weight)
    if whole.dim() < 3 or reduction == "none" or size_average is not None or reduce is not None:
        raise NotCovered
    return TrialLosses(nll_loss(whole, target, weight, ignore_index, reduction))


def _elementwise(function: Any) -> Callable[..., TrialLosses]:
    def loss(input: Any, target: Tensor, *args: Any, reduction: str = "mean", **kwargs: Any) -> TrialLosses:
        whole = _predictions(input, target, *args, *kwargs.values())
        options = {name: value for name, value in kwargs.items() if value is not None}
        alike = isinstance(target, Tensor) and whole.shape[1:] == target.shape
        tensors = any(isinstance(value, Tensor) for value in options.values())
        if not alike or args or tensors or reduction == "none":
            raise NotCovered
        return TrialLosses(elementwise_loss(function, whole, target, reduction, **options))

    return loss


_LOSSES: dict[Any, Callable[..., Any]] = {
    F.cross_entropy: _cross_entropy,
    F.nll_loss: _nll_loss,
    F.mse_loss: _elementwise(F.mse_loss),
    F.l1_loss: _elementwise(F.l1_loss),
    F.smooth_l1_loss: _elementwise(F.smooth_l1_loss),
    F.huber_loss: _elementwise(F.huber_loss),
    F.binary_cross_entropy: _elementwise(F.binary_cross_entropy),
    F.binary_cross_entropy_with_logits: _elementwise(F.binary_cross_entropy_with_logits),
}


def wrapped(outputs: Any) -> Any:
    """The outputs of a fused module with every tensor as a ``TrialBatch``."""
    return map_tensors(TrialBatch, outputs)
