"""Gradients in the memory order of their values.

Operations that leave the channels-last order (a mean over space, flattening) hand back gradients in another
order, and batch norm's and ReLU's backward passes are many times slower when the two orders differ.
"""

from typing import Any

import torch
from torch import Tensor

_ORDERS = {4: torch.channels_last, 5: torch.channels_last_3d}


class _Ordered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].contiguous(memory_format=_ORDERS[grads[0].dim()])


def with_ordered_gradient(value: Tensor) -> Tensor:
    """The same value; its gradient comes back channels-last where the value is."""
    order = _ORDERS.get(value.dim())
    if order is None or not value.requires_grad or not value.is_contiguous(memory_format=order):
        return value
    return _Ordered.apply(value)
