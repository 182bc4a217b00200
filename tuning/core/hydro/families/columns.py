"""One-dimensional convolutions of many trials on a CPU, as columns (im2col) and batched matrix products.

PyTorch runs a grouped convolution over a line group by group, with a backward pass far from the speed of its
matrix products. Here memory runs over channels, positions and samples, so that a column is whole rows of
samples, copied as they lie, and batch norm finds each channel in one piece. Strided layers gain 1.2 to 4
times; where windows overlap much, columns grow larger than what they save, and PyTorch's form is kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tuning.core.hydro.families.samples_last import lines_of, samples_last_empty

MOST_COLUMNS = 2.5  # values of all columns over values of the input, at most
LEAST_PRODUCT = 4  # outputs x inputs of a group; smaller products, as of depthwise layers, gain nothing


@dataclass(frozen=True)
class Window:
    """What a kernel over a line covers: its size, stride, padding and dilation, in positions."""

    size: int
    stride: int
    padding: int
    dilation: int

    def outputs(self, positions: int) -> int:
        """How many places the window has on a line of `positions`."""
        return (positions + 2 * self.padding - self.dilation * (self.size - 1) - 1) // self.stride + 1

    def spans(self, positions: int) -> Iterator[tuple[int, int, slice]]:
        """For each element of the kernel: the outputs [low, high) it reaches, and the positions they see."""
        outputs = self.outputs(positions)
        for element in range(self.size):
            offset = element * self.dilation - self.padding
            low = min(max(0, -(offset // self.stride)), outputs)
            high = max(low, min(outputs, (positions - 1 - offset) // self.stride + 1))
            first = low * self.stride + offset
            yield low, high, slice(first, first + (high - low) * self.stride, self.stride)


def window_of(input: Tensor, kernels: Tensor, options: dict[str, Any], groups: int) -> Window | None:
    """The window of a convolution of ``(N, C, L)`` that is faster by columns, or None."""
    if input.dim() != 3 or input.device.type != "cpu" or not input.is_floating_point():
        return None
    # Mixed types are PyTorch's to convert, or to refuse.
    if (
        input.dtype != kernels.dtype
        or torch.is_autocast_enabled("cpu")
        or isinstance(options["padding"], str)
    ):
        return None
    stride, padding, dilation = (_single(options[name]) for name in ("stride", "padding", "dilation"))
    outputs, inputs, size = kernels.shape
    if size > MOST_COLUMNS * stride or outputs // groups * inputs < LEAST_PRODUCT:
        return None
    window = Window(size, stride, padding, dilation)
    return window if window.outputs(input.shape[2]) > 0 else None


def convolve_by_columns(
    input: Tensor, kernels: Tensor, bias: Tensor | None, window: Window, groups: int
) -> Tensor:
    """A convolution of ``(N, groups * in, L)`` by ``(groups * out, in, size)``; samples then lie last."""
    out: Tensor = _Columns.apply(input, kernels, bias, window, groups)
    return out


class _Columns(torch.autograd.Function):
    """Layers that follow work in place, so what it returns is no view of another tensor."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, kernels: Tensor, bias: Tensor | None, window: Window, groups: int
    ) -> Tensor:
        samples, channels, positions = input.shape
        columns = _columns(lines_of(input).view(groups, channels // groups, positions, samples), window)
        weight = kernels.reshape(groups, kernels.shape[0] // groups, -1)
        out = samples_last_empty(input, (samples, kernels.shape[0], window.outputs(positions)))
        products = lines_of(out).view(*weight.shape[:2], columns.shape[2])
        if bias is None:
            torch.bmm(weight, columns, out=products)
        else:
            torch.baddbmm(bias.view(*weight.shape[:2], 1), weight, columns, out=products)
        ctx.save_for_backward(columns, weight)
        ctx.window, ctx.shapes = window, (input.shape, kernels.shape)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        columns, weight = ctx.saved_tensors
        (samples, channels, positions), of_kernels = ctx.shapes
        gradient = lines_of(gradients[0]).view(*weight.shape[:2], columns.shape[2])
        found: list[Tensor | None] = [None] * 5
        if ctx.needs_input_grad[0]:
            shape = (weight.shape[0], channels // weight.shape[0], positions, samples)
            lines = _lines(torch.bmm(weight.transpose(1, 2), gradient), shape, ctx.window)
            found[0] = lines.view(channels, positions, samples).permute(2, 0, 1)
        if ctx.needs_input_grad[1]:
            found[1] = torch.bmm(gradient, columns.transpose(1, 2)).view(of_kernels)
        if ctx.needs_input_grad[2]:
            found[2] = gradient.sum(2).flatten()
        return tuple(found)


def _columns(lines: Tensor, window: Window) -> Tensor:
    groups, channels, positions, samples = lines.shape
    outputs = window.outputs(positions)
    columns = lines.new_empty(groups, channels, window.size, outputs, samples)
    for element, (low, high, seen) in enumerate(window.spans(positions)):
        columns[:, :, element, :low] = 0
        columns[:, :, element, high:] = 0
        columns[:, :, element, low:high] = lines[:, :, seen]
    return columns.view(groups, channels * window.size, outputs * samples)


def _lines(columns: Tensor, shape: tuple[int, ...], window: Window) -> Tensor:
    groups, channels, positions, samples = shape
    parts = columns.view(groups, channels, window.size, -1, samples)
    lines = columns.new_zeros(shape)
    for element, (low, high, seen) in enumerate(window.spans(positions)):
        lines[:, :, seen] += parts[:, :, element, low:high]
    return lines


def _single(value: Any) -> int:
    return int(value[0] if isinstance(value, tuple | list) else value)
