"""Norms: every trial normalises with its own statistics, running averages, gains and biases."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.families.samples_last import SamplesLastNorm, takes_samples_last
from tuning.core.hydro.fused_graph import Fuser, Layout, Value, function_rule, module_rule
from tuning.core.hydro.layers import FunctionalBatchNorm


def _flat(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.flatten()


def batch_norm(
    input: Tensor,
    mean: Tensor | None,
    variance: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """Batch norm of ``(N, F * C, ...)``; the statistics, ``(F, C)``, are updated in training."""
    if training and input.numel() == input.shape[1]:
        raise FuseError(
            "batch norm got one value per channel in training: a batch of one sample cannot be normalised, "
            "so drop the last batch or fold it into the one before"
        )
    gain, shift, mean, variance = (_flat(tensor) for tensor in (weight, bias, mean, variance))
    if takes_samples_last(input, gain, shift, mean, variance):
        normal: Tensor = SamplesLastNorm.apply(input, gain, shift, mean, variance, training, momentum, eps)
        return normal
    cudnn = torch.backends.cudnn.enabled
    return torch.batch_norm(input, gain, shift, mean, variance, training, momentum, eps, cudnn)


def count_batches(counter: Tensor) -> Tensor:
    """Add one to ``num_batches_tracked`` of every trial."""
    return counter.add_(1)


def average_statistics(input: Tensor, mean: Tensor, variance: Tensor, counter: Tensor) -> Tensor:
    """Cumulative averages (``momentum=None``): each trial weighs this batch by 1 over its own batch count."""
    with torch.no_grad():
        dims = [0, *range(2, input.dim())]
        batch_variance, batch_mean = torch.var_mean(input, dims)
        weight = 1.0 / counter.to(mean.dtype).unsqueeze(1)
        mean.lerp_(batch_mean.view_as(mean), weight)
        return variance.lerp_(batch_variance.view_as(variance), weight)


@module_rule(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def batch_norm_layer(fuser: Fuser, module: nn.BatchNorm2d, path: str, input: Value) -> Value:
    node = fuser.packed(input)
    tracked = [fuser.optional(path, name) for name in ("running_mean", "running_var")]
    affine = [fuser.optional(path, name) for name in ("weight", "bias")]
    use_batch = fuser.training or tracked[0] is None
    updates = fuser.training and tracked[0] is not None
    counter = fuser.optional(path, "num_batches_tracked") if updates else None
    if counter is not None:
        fuser.write(count_batches, counter)
    if updates and module.momentum is None:
        fuser.write(average_statistics, node, *tracked, counter)
    if use_batch and (not updates or module.momentum is None):
        tracked = [None, None]
    momentum = 0.0 if module.momentum is None else module.momentum
    result = fuser.emit(batch_norm, node, *tracked, *affine, use_batch, momentum, module.eps)
    result.meta["writes"] = updates
    return Value(result, Layout.PACKED)


@module_rule(FunctionalBatchNorm)
def functional_batch_norm(
    fuser: Fuser, module: FunctionalBatchNorm, path: str, input: Value, *tensors: Value | None
) -> Value:
    held = [None if tensor is None else fuser.first(tensor) for tensor in tensors]
    held += [None] * (4 - len(held))
    use_batch = fuser.training or held[0] is None
    node = fuser.packed(input)
    result = fuser.emit(batch_norm, node, *held, use_batch, module.momentum, module.eps)
    result.meta["writes"] = use_batch and held[0] is not None
    return Value(result, Layout.PACKED)


def layer_norm(
    input: Tensor, shape: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Layer norm of ``(F, N, ..., *shape)`` with gain and bias ``(F, *shape)``."""
    return _affine(F.layer_norm(input, shape, eps=eps), weight, bias)


def rms_norm(input: Tensor, shape: tuple[int, ...], weight: Tensor | None, eps: float | None) -> Tensor:
    """RMS norm of ``(F, N, ..., *shape)`` with gain ``(F, *shape)``."""
    return _affine(F.rms_norm(input, shape, eps=eps), weight, None)


def _affine(normal: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is None:
        return normal
    sizes = (weight.shape[0], *(1,) * (normal.dim() - weight.dim()), *weight.shape[1:])
    gain = weight.view(sizes)
    return normal * gain if bias is None else torch.addcmul(bias.view(sizes), normal, gain)


@module_rule(nn.LayerNorm)
def layer_norm_layer(fuser: Fuser, module: nn.LayerNorm, path: str, input: Value) -> Value:
    affine = [fuser.optional(path, name) for name in ("weight", "bias")]
    return _normed(fuser, layer_norm, input, tuple(module.normalized_shape), *affine, module.eps)


@function_rule(F.layer_norm, torch.layer_norm)
def layer_norm_function(
    fuser: Fuser,
    function: Any,
    input: Value,
    normalized_shape: Any,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    affine = [None if tensor is None else fuser.first(tensor) for tensor in (weight, bias)]
    return _normed(fuser, layer_norm, input, tuple(normalized_shape), *affine, eps)


@module_rule(nn.RMSNorm)
def rms_norm_layer(fuser: Fuser, module: nn.RMSNorm, path: str, input: Value) -> Value:
    weight = fuser.optional(path, "weight")
    return _normed(fuser, rms_norm, input, tuple(module.normalized_shape), weight, module.eps)


def _normed(fuser: Fuser, function: Any, input: Value, shape: tuple[int, ...], *rest: Any) -> Value:
    return Value(fuser.emit(function, fuser.first(input), shape, *rest), Layout.FIRST)


def group_norm(
    input: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float, trials: int
) -> Tensor:
    """Group norm of ``(N, F * C, ...)``, ``groups`` groups per trial."""
    return F.group_norm(input, groups * trials, _flat(weight), _flat(bias), eps)


@module_rule(nn.GroupNorm)
def group_norm_layer(fuser: Fuser, module: nn.GroupNorm, path: str, input: Value) -> Value:
    affine = [fuser.optional(path, name) for name in ("weight", "bias")]
    return _grouped(fuser, input, module.num_groups, affine, module.eps)


@function_rule(F.group_norm, torch.group_norm)
def group_norm_function(
    fuser: Fuser,
    function: Any,
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    affine = [None if tensor is None else fuser.first(tensor) for tensor in (weight, bias)]
    return _grouped(fuser, input, num_groups, affine, eps)


def _grouped(fuser: Fuser, input: Value, groups: int, affine: list[fx.Node | None], eps: float) -> Value:
    node = fuser.emit(group_norm, fuser.packed(input), groups, *affine, eps, fuser.trials)
    return Value(node, Layout.PACKED)


@module_rule(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def instance_norm_layer(fuser: Fuser, module: nn.InstanceNorm2d, path: str, input: Value) -> Value:
    names = ("running_mean", "running_var", "weight", "bias")
    tensors = [fuser.optional(path, name) for name in names]
    use_input = fuser.training or not module.track_running_stats
    momentum = 0.0 if module.momentum is None else module.momentum
    node = fuser.emit(instance_norm, fuser.packed(input), *tensors, use_input, momentum, module.eps)
    node.meta["writes"] = use_input and tensors[0] is not None
    return Value(node, Layout.PACKED)


def instance_norm(
    input: Tensor,
    mean: Tensor | None,
    variance: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    use_input: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """Instance norm of ``(N, F * C, ...)``."""
    tensors = (_flat(mean), _flat(variance), _flat(weight), _flat(bias))
    return F.instance_norm(input, *tensors, use_input, momentum, eps)
