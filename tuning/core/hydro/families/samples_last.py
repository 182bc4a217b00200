"""Lines ``(N, C, L)`` whose samples lie last in memory, as convolutions by columns leave them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def lines_of(input: Tensor) -> Tensor:
    """``(C, L, N)`` in one piece, without a copy where samples lie last already."""
    return input.permute(1, 2, 0).contiguous()


def samples_last_empty(like: Tensor, shape: Sequence[int]) -> Tensor:
    """An empty ``(N, C, L)`` whose samples lie last in memory."""
    samples, _, positions = shape
    return like.new_empty_strided(tuple(shape), (1, positions * samples, samples))


def has_samples_last(input: Tensor) -> bool:
    """Whether these are lines in this order and in no other."""
    return input.dim() == 3 and not input.is_contiguous() and input.permute(1, 2, 0).is_contiguous()


def takes_samples_last(input: Tensor, *tensors: Tensor | None) -> bool:
    """Whether `SamplesLastNorm` is for these: on a CPU, and all of one type."""
    alike = all(tensor is None or tensor.dtype == input.dtype for tensor in tensors)
    return alike and input.device.type == "cpu" and has_samples_last(input)


class SamplesLastNorm(torch.autograd.Function):
    """Batch norm of lines in this order: each channel lies in one piece, as of one sample of L * N positions.

    Layers that follow work in place, so what it returns is no view of another tensor.
    """

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor | None,
        variance: Tensor | None,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Tensor:
        rows, out = _rows(input), samples_last_empty(input, input.shape)
        saved = [input.new_empty(input.shape[1] if training else 0) for _ in ("mean", "inverse deviation")]
        torch.native_batch_norm(
            rows, weight, bias, mean, variance, training, momentum, eps, out=(_rows(out), *saved)
        )
        ctx.save_for_backward(rows, weight, mean, variance, *saved)
        ctx.training, ctx.eps = training, eps
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, mean, variance, *saved = ctx.saved_tensors
        of_rows, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            _rows(gradients[0]), rows, weight, mean, variance, *saved, ctx.training, ctx.eps,
            list(ctx.needs_input_grad[:3]),
        )  # fmt: skip
        if of_rows is not None:
            samples, channels, positions = gradients[0].shape
            of_rows = of_rows.view(channels, positions, samples).permute(2, 0, 1)
        return of_rows, of_weight, of_bias, None, None, None, None, None


def _rows(input: Tensor) -> Tensor:
    return lines_of(input).flatten(1).unsqueeze(0)
