"""Operations whose weight gradients are put off: B computes gradients of inputs, W those of weights.

Weights are no leaves of the autograd graph. A backward pass only notes what a weight gradient needs, and
`WeightWork.run` computes it later. Source of the split: Qi et al. 2024, "Zero Bubble Pipeline Parallelism".
Tensor parallelism follows Shoeybi et al. 2019, "Megatron-LM": columns, then rows, one sum each way.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from workers.trainer.parallel.groups import Group


class WeightWork:
    """Weight gradients of one micro-batch and model chunk that are still to be computed."""

    def __init__(self) -> None:
        self._owed: list[Callable[[], object]] = []

    def add(self, work: Callable[[], object]) -> None:
        """Put off one gradient."""
        self._owed.append(work)

    def run(self) -> None:
        """Add every gradient put off to its buffer."""
        owed, self._owed = self._owed, []
        with torch.no_grad():
            for work in owed:
                work()


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, owed: Any) -> Tensor:
        ctx.save_for_backward(x_TI, weight_OI)
        ctx.owed = owed
        return F.linear(x_TI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (grad_TO,) = grads
        x_TI, weight_OI = (tensor.detach() for tensor in ctx.saved_tensors)
        work, weight_grad_OI, bias_grad_O = ctx.owed

        def owed() -> None:
            weight_grad_OI.addmm_(grad_TO.t(), x_TI)
            if bias_grad_O is not None:
                bias_grad_O.add_(grad_TO.sum(0))

        work.add(owed)
        return grad_TO @ weight_OI, None, None, None


class _Scale(Function):
    @staticmethod
    def forward(ctx: Any, x_TD: Tensor, weight_D: Tensor, bias_D: Tensor, owed: Any) -> Tensor:
        ctx.save_for_backward(x_TD, weight_D)
        ctx.owed = owed
        return x_TD * weight_D + bias_D

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (grad_TD,) = grads
        x_TD, weight_D = (tensor.detach() for tensor in ctx.saved_tensors)
        work, weight_grad_D, bias_grad_D = ctx.owed

        def owed() -> None:
            weight_grad_D.add_((grad_TD * x_TD).sum(0))
            bias_grad_D.add_(grad_TD.sum(0))

        work.add(owed)
        return grad_TD * weight_D, None, None, None


class _Copy(Function):
    """Into a split region: nothing forwards, the sum over the group backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        total = grads[0].contiguous().clone()
        ctx.group.sum(total)
        return total, None


class _Sum(Function):
    """Out of a split region: the sum over the group forwards, nothing backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        total = x.contiguous().clone()
        group.sum(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        return grads[0], None


class _CrossEntropy(Function):
    """Summed cross entropy over a vocabulary that the group's ranks hold parts of, times `scale`."""

    @staticmethod
    def forward(
        ctx: Any, logits_TV: Tensor, targets_T: Tensor, first: int, group: Group, scale: float
    ) -> Tensor:
        largest_T = logits_TV.amax(1)
        group.largest(largest_T)
        exp_TV = (logits_TV - largest_T[:, None]).exp()
        own_T = targets_T - first
        mine_T = (own_T >= 0) & (own_T < logits_TV.shape[1])
        picked_T = logits_TV.gather(1, own_T.clamp(0, logits_TV.shape[1] - 1)[:, None])[:, 0]
        sums_2T = torch.stack([exp_TV.sum(1), torch.where(mine_T, picked_T, 0.0)])
        group.sum(sums_2T)
        ctx.save_for_backward(exp_TV / sums_2T[0][:, None], own_T, mine_T)
        ctx.scale = scale
        return (sums_2T[0].log() + largest_T - sums_2T[1]).sum() * scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        softmax_TV, own_T, mine_T = ctx.saved_tensors
        grad_TV = softmax_TV.clone()
        rows = mine_T.nonzero()[:, 0]
        grad_TV[rows, own_T[rows]] -= 1.0
        return grad_TV * (grads[0] * ctx.scale), None, None, None, None


def linear(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, owed: Any) -> Tensor:
    """x W^T + b; `owed` is (work, gradient buffer of the weight, of the bias or None)."""
    y_TO: Tensor = _Linear.apply(x_TI, weight_OI, bias_O, owed)
    return y_TO


def scale(x_TD: Tensor, weight_D: Tensor, bias_D: Tensor, owed: Any) -> Tensor:
    """x * w + b; `owed` is (work, gradient buffer of the weight, of the bias)."""
    y_TD: Tensor = _Scale.apply(x_TD, weight_D, bias_D, owed)
    return y_TD


def enter_split(x: Tensor, group: Group) -> Tensor:
    """Hand a tensor all shards hold to their parts of a layer."""
    y: Tensor = x if group.size == 1 else _Copy.apply(x, group)
    return y


def leave_split(x: Tensor, group: Group) -> Tensor:
    """Sum what the shards computed."""
    y: Tensor = x if group.size == 1 else _Sum.apply(x, group)
    return y


def cross_entropy(logits_TV: Tensor, targets_T: Tensor, first: int, group: Group, share: float) -> Tensor:
    """Summed cross entropy times `share`; the rank holds the symbols from `first` on."""
    loss: Tensor = _CrossEntropy.apply(logits_TV, targets_T, first, group, share)
    return loss
