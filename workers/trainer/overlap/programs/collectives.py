"""Collectives with their gradients, as tensor, sequence and expert parallelism need them.

PyTorch's own backward of a functional all-reduce is an all-reduce of the gradient, which counts a loss that
all ranks share once for each rank. The pairs here are those of Megatron-LM (arXiv 1909.08053, section 3).
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch.distributed.distributed_c10d import _resolve_process_group

# Group names are of a type whose constructor `torch.compile` does not trace, hence Any below.


class _Enter(torch.autograd.Function):
    """Forward nothing, backward the sum over the group: before a column-parallel layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return functional.all_reduce(gradient.contiguous(), "sum", ctx.group), None


class _Leave(torch.autograd.Function):
    """Forward the sum over the group, backward nothing: after a row-parallel layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        return functional.all_reduce(x, "sum", group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Gather(torch.autograd.Function):
    """Forward the parts of all ranks along a dimension, backward the sum of what belongs to this rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Any) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return functional.all_gather_single(x.contiguous(), dim, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        own = functional.reduce_scatter_single(gradient.contiguous(), "sum", ctx.dim, ctx.group)
        return own, None, None


class _Scatter(torch.autograd.Function):
    """The inverse of `_Gather`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Any) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return functional.reduce_scatter_single(x.contiguous(), "sum", dim, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return functional.all_gather_single(gradient.contiguous(), ctx.dim, ctx.group), None, None


class _Exchange(torch.autograd.Function):
    """Equal parts along the first dimension, one for each rank; its own inverse."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return functional.all_to_all_single(x.contiguous(), None, None, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return functional.all_to_all_single(gradient.contiguous(), None, None, ctx.group), None


class _Shift(torch.autograd.Function):
    """To the next rank of the ring and from the one before; backward the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, step: int, group: Any) -> Tensor:
        ctx.step, ctx.group = step, group
        return _shifted(x, step, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _shifted(gradient, -ctx.step, ctx.group), None, None


def _shifted(x: Tensor, step: int, group: Any) -> Tensor:
    members = dist.get_process_group_ranks(_resolve_process_group(group))
    me, count = members.index(dist.get_rank()), len(members)
    sent, received = [0] * count, [0] * count
    sent[(me + step) % count] = received[(me - step) % count] = x.numel()
    flat = functional.all_to_all_single(x.contiguous().view(-1), received, sent, group)
    return flat.view(x.shape)


def enter(x: Tensor, group: str) -> Tensor:
    """Before a column-parallel layer: the input as it is, its gradient summed over the group."""
    out: Tensor = _Enter.apply(x, group)
    return out


def leave(x: Tensor, group: str) -> Tensor:
    """After a row-parallel layer: the sum over the group, its gradient as it is."""
    out: Tensor = _Leave.apply(x, group)
    return out


def gather(x: Tensor, dim: int, group: str) -> Tensor:
    """The parts of all ranks along a dimension."""
    out: Tensor = _Gather.apply(x, dim, group)
    return out


def scatter(x: Tensor, dim: int, group: str) -> Tensor:
    """This rank's part, along a dimension, of the sum over the group."""
    out: Tensor = _Scatter.apply(x, dim, group)
    return out


def exchange(x: Tensor, group: str) -> Tensor:
    """Part i along the first dimension goes to rank i of the group."""
    out: Tensor = _Exchange.apply(x, group)
    return out


def shift(x: Tensor, step: int, group: str) -> Tensor:
    """To the rank `step` further on in the ring."""
    out: Tensor = _Shift.apply(x, step, group)
    return out
