"""Convolutions: the trials are groups. On a CPU images run in channels-last order, the fastest measured."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.families.columns import convolve_by_columns, window_of
from tuning.core.hydro.fused_graph import Fuser, Layout, Value, function_rule, module_rule

_PLAIN = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
_CHANNELS_LAST_ORDER = {1: (0, 1, 2, 3), 2: (0, 1, 3, 4, 2), 3: (0, 1, 3, 4, 5, 2)}


def grouped(
    function: Any, input: Tensor, weight: Tensor, bias: Tensor | None, options: dict[str, Any], groups: int
) -> Tensor:
    """A convolution of ``(N, F * C, ...)`` by ``(F, out, in, ...)``, each trial in its own groups."""
    kernels = weight.flatten(0, 1)
    order = _CHANNELS_LAST.get(input.dim() - 2)
    if order is not None and input.device.type == "cpu":
        if groups == 1 and kernels[0, 0].numel() == 1:
            # The backward pass of PyTorch 2.13 for the CPU overruns its memory at a strided 1x1 convolution
            # without groups in channels-last order; in plain order it is safe.
            input, kernels = plain_order(input), plain_order(kernels)
        else:
            # One channel is in every order at once; only a copy makes all that follows channels-last.
            one_channel = input.shape[1] == 1
            input = input.clone(memory_format=order) if one_channel else input.contiguous(memory_format=order)
    flat_bias = None if bias is None else bias.flatten()
    window = window_of(input, kernels, options, groups) if function is F.conv1d else None
    if window is not None:
        return convolve_by_columns(input, kernels, flat_bias, window, groups)
    return function(input, kernels, flat_bias, **options, groups=groups)


def plain_order(value: Tensor) -> Tensor:
    """A copy in plain order; one whose spatial size is 1 would pass for plain as it is."""
    return value.clone(memory_format=torch.contiguous_format)


def grouped_by_trial(
    function: Any,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    options: dict[str, Any],
    groups: int,
    trials: int,
) -> Tensor:
    """``grouped`` where every trial has ``groups`` groups of its own."""
    return grouped(function, input, weight, bias, options, groups * trials)


def convolve(
    fuser: Fuser,
    function: Any,
    input: Value,
    weight: fx.Node,
    bias: fx.Node | None,
    options: dict[str, Any],
    groups: int,
) -> Value:
    """A convolution with one kernel per trial."""
    dims = len(weight.meta["example"].shape) - 3
    if fuser.rank(input) != dims + 2:
        raise FuseError(
            f"a convolution over {dims} dimensions got an input of {fuser.rank(input)}: give it (N, C, ...)"
        )
    transposed = function in _TRANSPOSED.values()
    if input.layout is Layout.SHARED and groups == 1 and not transposed:
        # One input for all: an ordinary, wide convolution.
        node = fuser.emit(grouped, function, input.node, weight, bias, options, 1)
    else:
        node = fuser.emit(
            grouped_by_trial, function, fuser.packed(input), weight, bias, options, groups, fuser.trials
        )
    return Value(node, Layout.PACKED)


def _weight(fuser: Fuser, path: str, dims: int) -> fx.Node:
    weight = fuser.optional(path, "weight", _CHANNELS_LAST_ORDER[dims])
    assert weight is not None
    return weight


@module_rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(fuser: Fuser, module: nn.Conv2d, path: str, input: Value) -> Value:
    dims = len(module.kernel_size)
    padding: Any = module.padding
    if module.padding_mode != "zeros":
        input = _pad_around(fuser, module, input)
        padding = 0
    options = {"stride": module.stride, "padding": padding, "dilation": module.dilation}
    weight, bias = _weight(fuser, path, dims), fuser.optional(path, "bias")
    return convolve(fuser, _PLAIN[dims], input, weight, bias, options, module.groups)


def _pad_around(fuser: Fuser, module: nn.Conv2d, input: Value) -> Value:
    widths = tuple(module._reversed_padding_repeated_twice)
    node = input.node if input.layout is Layout.SHARED else fuser.packed(input)
    layout = Layout.SHARED if input.layout is Layout.SHARED else Layout.PACKED
    return Value(fuser.emit(F.pad, node, widths, mode=module.padding_mode), layout)


@module_rule(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def transposed_convolution(
    fuser: Fuser, module: nn.ConvTranspose2d, path: str, input: Value, output_size: Any = None
) -> Value:
    if output_size is not None:
        raise FuseError("output_size is not supported here: set output_padding on the layer")
    dims = len(module.kernel_size)
    options = {
        "stride": module.stride,
        "padding": module.padding,
        "output_padding": module.output_padding,
        "dilation": module.dilation,
    }
    weight, bias = _weight(fuser, path, dims), fuser.optional(path, "bias")
    return convolve(fuser, _TRANSPOSED[dims], input, weight, bias, options, module.groups)


@function_rule(*_PLAIN.values())
def convolution_function(
    fuser: Fuser,
    function: Any,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    bias_node = None if bias is None else fuser.first(bias)
    return convolve(fuser, function, input, fuser.first(weight), bias_node, options, groups)


@function_rule(*_TRANSPOSED.values())
def transposed_convolution_function(
    fuser: Fuser,
    function: Any,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    options = {
        "stride": stride,
        "padding": padding,
        "output_padding": output_padding,
        "dilation": dilation,
    }
    bias_node = None if bias is None else fuser.first(bias)
    return convolve(fuser, function, input, fuser.first(weight), bias_node, options, groups)
