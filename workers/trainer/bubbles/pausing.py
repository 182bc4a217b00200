"""Pause points in a training program, at every layer, without changing it.

A fused container runs a compiled program that has no modules, so the hooks sit on the functions that do a
layer's work: before each of them forwards, and on its output's gradient backwards.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from workers.squeezer.gate import GuestGate

LAYERS: frozenset[Callable[..., Any]] = frozenset(
    {
        F.linear,
        F.conv1d,
        F.conv2d,
        F.conv3d,
        F.conv_transpose2d,
        F.scaled_dot_product_attention,
        F.embedding,
        F.batch_norm,
        F.layer_norm,
        F.group_norm,
        torch.conv1d,
        torch.conv2d,
        torch.conv3d,
        torch.matmul,
        torch.bmm,
        torch.baddbmm,
        torch.addmm,
        torch.mm,
        torch.einsum,
        Tensor.matmul,
        Tensor.__matmul__,
        Tensor.bmm,
        Tensor.baddbmm,
    }
)


class PausePoints(TorchFunctionMode):
    """`with PausePoints(gate): ...` makes everything inside pause at its gate between two layers."""

    def __init__(self, gate: GuestGate) -> None:
        super().__init__()
        self.gate = gate
        self._queued: list[Any] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Pause before a layer, and have its backward pass pause as well."""
        if func not in LAYERS:
            return func(*args, **(kwargs or {}))
        self._point()
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            if out.requires_grad:
                out.register_hook(self._backward)
            if out.is_cuda:
                self._mark(out.device)
        return out

    def _backward(self, grad: Tensor) -> None:
        self._point()
        if grad.is_cuda:
            self._mark(grad.device)

    def _point(self) -> None:
        # work that is queued on a GPU cannot be held back: at most one layer is ahead
        while len(self._queued) > 1:
            self._queued.pop(0).synchronize()
        self.gate.point()

    def _mark(self, device: torch.device) -> None:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        self._queued.append(event)
