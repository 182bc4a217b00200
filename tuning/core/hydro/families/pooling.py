"""Pooling, resizing and padding of space: every channel by itself, so the trials stay inside the channels."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuning.core.hydro.fused_graph import (
    Fuser,
    Layout,
    Value,
    function_rule,
    known_type,
    module_rule,
    nodes_of,
)

# Layer to the number of dimensions of its space; 0 where any number is fine.
_BY_CHANNEL: dict[type[nn.Module], int] = {
    getattr(nn, f"{name}{dims}d"): dims
    for dims in (1, 2, 3)
    for name in (
        *("MaxPool", "AvgPool", "LPPool", "AdaptiveAvgPool", "AdaptiveMaxPool", "MaxUnpool"),
        *("ReflectionPad", "ReplicationPad", "CircularPad", "ZeroPad", "ConstantPad"),
    )
    if hasattr(nn, f"{name}{dims}d")
} | {nn.Upsample: 0, nn.UpsamplingNearest2d: 2, nn.UpsamplingBilinear2d: 2}

_BY_SAMPLE: tuple[type[nn.Module], ...] = (
    nn.PixelShuffle,
    nn.PixelUnshuffle,
    nn.ChannelShuffle,
    nn.Unfold,
    nn.Fold,
    nn.LocalResponseNorm,
)


def _call_of(module: nn.Module) -> Callable[..., Any]:
    def call(*tensors: Any) -> Any:
        return module(*tensors)

    call.__name__ = type(module).__name__.lower()
    return call


@module_rule(*_BY_CHANNEL)
def by_channel(fuser: Fuser, module: nn.Module, path: str, *inputs: Value) -> Any:
    dims = _BY_CHANNEL[known_type(module)]  # type: ignore[index]
    if not any(value.is_per_trial for value in inputs):
        return Value(fuser.emit(_call_of(module), *(value.node for value in inputs)), Layout.SHARED)
    if dims and fuser.rank(inputs[0]) != dims + 2:
        return fuser.vectorised(_call_of(module), inputs, {})
    return Value(fuser.emit(_call_of(module), *(fuser.packed(value) for value in inputs)), Layout.PACKED)


def by_each_sample(function: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:
    """A function of batches ``(N, ...)``, applied to ``(F, N, ...)`` as one batch."""
    result = function(input.flatten(0, 1))
    return result.view(*input.shape[:2], *result.shape[1:])


@module_rule(*_BY_SAMPLE)
def by_sample(fuser: Fuser, module: nn.Module, path: str, input: Value) -> Value:
    if not input.is_per_trial:
        return Value(fuser.emit(_call_of(module), input.node), Layout.SHARED)
    return Value(fuser.emit(by_each_sample, _call_of(module), fuser.first(input)), Layout.FIRST)


_FUNCTIONS = {
    F.max_pool1d: 1,
    F.max_pool2d: 2,
    F.max_pool3d: 3,
    torch.max_pool1d: 1,
    torch.max_pool2d: 2,
    F.avg_pool1d: 1,
    F.avg_pool2d: 2,
    F.avg_pool3d: 3,
    F.adaptive_avg_pool1d: 1,
    F.adaptive_avg_pool2d: 2,
    F.adaptive_avg_pool3d: 3,
    torch.adaptive_avg_pool1d: 1,
    F.adaptive_max_pool1d: 1,
    F.adaptive_max_pool2d: 2,
}


@function_rule(*_FUNCTIONS)
def pool_function(fuser: Fuser, function: Any, input: Value, *args: Any, **kwargs: Any) -> Any:
    if fuser.rank(input) != _FUNCTIONS[function] + 2:
        return fuser.vectorised(function, (input, *args), kwargs)
    return Value(fuser.emit(function, fuser.packed(input), *args, **kwargs), Layout.PACKED)


@function_rule(F.interpolate)
def interpolate(fuser: Fuser, function: Any, input: Value, *args: Any, **kwargs: Any) -> Value:
    return Value(fuser.emit(F.interpolate, fuser.packed(input), *args, **kwargs), Layout.PACKED)


@function_rule(F.pad, torch.nn.functional.pad)
def pad(
    fuser: Fuser, function: Any, input: Value, pad: Any, mode: str = "constant", value: float | None = None
) -> Any:
    widths = nodes_of(tuple(pad))
    if len(pad) // 2 <= fuser.rank(input) - 2:
        node = fuser.emit(F.pad, fuser.packed(input), widths, mode, value)
        return Value(node, Layout.PACKED)
    if mode != "constant":
        return fuser.vectorised(F.pad, (input, widths, mode, value), {})
    return Value(fuser.emit(F.pad, fuser.first(input), widths, mode, value), Layout.FIRST)


@function_rule(F.pixel_shuffle, F.pixel_unshuffle)
def shuffle(fuser: Fuser, function: Any, input: Value, factor: int) -> Value:
    def call(batch: Tensor) -> Tensor:
        return function(batch, factor)

    return Value(fuser.emit(by_each_sample, call, fuser.first(input)), Layout.FIRST)
