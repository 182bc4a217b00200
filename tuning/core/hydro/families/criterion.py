"""Loss functions: one mean per trial, from one call over the samples of all of them."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from tuning.core.hydro.fused_graph import Fuser, Layout, Value, function_rule, module_rule


def repeated_target(target: Tensor, trials: int) -> Tensor:
    """(N, ...) to (F * N, ...), the same for every trial."""
    return target.expand(trials, *target.shape).flatten(0, 1)


def reduced(losses: Tensor, trials: int, reduction: str) -> Tensor:
    """(F * N, ...) to (F,), or to (F, N, ...) for ``none``."""
    per_trial = losses.view(trials, -1)
    if reduction == "mean":
        return per_trial.mean(1)
    if reduction == "sum":
        return per_trial.sum(1)
    return losses.view(trials, losses.shape[0] // trials, *losses.shape[1:])


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    """``F.cross_entropy`` of ``(F, N, C, ...)`` with a target ``(N, ...)`` that the trials share: (F,)."""
    trials = input.shape[0]
    losses = F.cross_entropy(
        input.flatten(0, 1),
        repeated_target(target, trials),
        weight,
        ignore_index=ignore_index,
        reduction="none",
        label_smoothing=label_smoothing,
    )
    return _class_mean(losses, target, weight, ignore_index, reduction, trials)


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str
) -> Tensor:
    """``F.nll_loss`` of ``(F, N, C, ...)`` with a target ``(N, ...)`` that the trials share: (F,)."""
    trials = input.shape[0]
    losses = F.nll_loss(
        input.flatten(0, 1),
        repeated_target(target, trials),
        weight,
        ignore_index=ignore_index,
        reduction="none",
    )
    return _class_mean(losses, target, weight, ignore_index, reduction, trials)


def _class_mean(
    losses: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, trials: int
) -> Tensor:
    """A mean over the counted samples, or over the weights of their classes."""
    if reduction != "mean" or target.is_floating_point():
        return reduced(losses, trials, reduction)
    if weight is not None:
        counted = target != ignore_index
        total = weight[target.where(counted, 0)].mul(counted).sum()
    else:
        total = (target != ignore_index).sum()
    return losses.view(trials, -1).sum(1) / total


_ELEMENTWISE = {
    F.mse_loss,
    F.l1_loss,
    F.smooth_l1_loss,
    F.huber_loss,
    F.binary_cross_entropy,
    F.binary_cross_entropy_with_logits,
    F.soft_margin_loss,
}


@function_rule(F.cross_entropy)
def cross_entropy_function(
    fuser: Fuser,
    function: Any,
    input: Value,
    target: Value,
    weight: Value | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Value:
    rest = (ignore_index, reduction, label_smoothing)
    if not _is_simple(fuser, input, (target, weight), (size_average, reduce)):
        names = ("ignore_index", "reduction", "label_smoothing")
        return _vectorised(fuser, function, (input, target, weight), dict(zip(names, rest, strict=True)))
    return _emit(fuser, cross_entropy, input, target, weight, *rest)


@function_rule(F.nll_loss)
def nll_function(
    fuser: Fuser,
    function: Any,
    input: Value,
    target: Value,
    weight: Value | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Value:
    if not _is_simple(fuser, input, (target, weight), (size_average, reduce)):
        options = {"ignore_index": ignore_index, "reduction": reduction}
        return _vectorised(fuser, function, (input, target, weight), options)
    return _emit(fuser, nll_loss, input, target, weight, ignore_index, reduction)


def _is_simple(fuser: Fuser, input: Value, shared: tuple[Value | None, ...], legacy: tuple[Any, ...]) -> bool:
    """Whether only the predictions differ between trials, as they do in training."""
    common = all(item is None or not item.is_per_trial for item in shared)
    return common and input.is_per_trial and fuser.rank(input) >= 2 and legacy == (None, None)


def _vectorised(fuser: Fuser, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    result: Value = fuser.vectorised(function, args, kwargs)
    return result


def _emit(
    fuser: Fuser, function: Any, input: Value, target: Value, weight: Value | None, *rest: Any
) -> Value:
    class_weight = None if weight is None else weight.node
    return Value(fuser.emit(function, fuser.first(input), target.node, class_weight, *rest), Layout.FIRST)


def elementwise_loss(function: Any, input: Tensor, target: Tensor, reduction: str, **options: Any) -> Tensor:
    """A loss that pairs the elements of ``(F, N, ...)`` with those of ``(N, ...)``: (F,)."""
    losses = function(input, target.expand(input.shape), reduction="none", **options)
    if reduction == "none":
        return losses
    flat = losses.flatten(1)
    return flat.mean(1) if reduction == "mean" else flat.sum(1)


@function_rule(*_ELEMENTWISE)
def elementwise_loss_function(
    fuser: Fuser,
    function: Any,
    input: Value,
    target: Value,
    *args: Any,
    reduction: str = "mean",
    **kwargs: Any,
) -> Value:
    options = {key: value for key, value in kwargs.items() if value is not None}
    alike = fuser.shape(input) == fuser.shape(target)
    if args or not alike or any(isinstance(value, Value) for value in options.values()):
        return _vectorised(fuser, function, (input, target, *args), {**kwargs, "reduction": reduction})
    pair = [value.node if value.layout is Layout.SHARED else fuser.first(value) for value in (input, target)]
    if input.layout is Layout.SHARED:
        pair[0] = fuser.first(input)
    node = fuser.emit(elementwise_loss, function, *pair, reduction, **options)
    return Value(node, Layout.FIRST)


@module_rule(nn.CrossEntropyLoss)
def cross_entropy_layer(
    fuser: Fuser, module: nn.CrossEntropyLoss, path: str, input: Value, target: Value
) -> Any:
    weight = None if module.weight is None else fuser.tensor(f"{path}.weight" if path else "weight")
    options = {
        "ignore_index": module.ignore_index,
        "reduction": module.reduction,
        "label_smoothing": module.label_smoothing,
    }
    return fuser.function(F.cross_entropy, (input, target, weight), options)


@module_rule(nn.NLLLoss)
def nll_layer(fuser: Fuser, module: nn.NLLLoss, path: str, input: Value, target: Value) -> Any:
    weight = None if module.weight is None else fuser.tensor(f"{path}.weight" if path else "weight")
    options = {"ignore_index": module.ignore_index, "reduction": module.reduction}
    return fuser.function(F.nll_loss, (input, target, weight), options)


_LAYERS: dict[type[nn.Module], tuple[Any, str | None]] = {
    nn.MSELoss: (F.mse_loss, None),
    nn.L1Loss: (F.l1_loss, None),
    nn.SmoothL1Loss: (F.smooth_l1_loss, "beta"),
    nn.HuberLoss: (F.huber_loss, "delta"),
    nn.SoftMarginLoss: (F.soft_margin_loss, None),
}


@module_rule(*_LAYERS)
def elementwise_loss_layer(fuser: Fuser, module: nn.MSELoss, path: str, input: Value, target: Value) -> Any:
    function, name = _LAYERS[type(module)]
    options = {} if name is None else {name: getattr(module, name)}
    return fuser.function(function, (input, target), {**options, "reduction": module.reduction})
