"""Activations: element by element, so any layout will do; softmax and its like shift their dimension."""

import operator
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
    values_in,
)
from tuning.core.hydro.layers import Scale

_MODULES: dict[type[nn.Module], tuple[Any, tuple[str, ...]]] = {
    nn.ReLU: (F.relu, ()),
    nn.ReLU6: (F.relu6, ()),
    nn.Tanh: (torch.tanh, ()),
    nn.Sigmoid: (torch.sigmoid, ()),
    nn.LeakyReLU: (F.leaky_relu, ("negative_slope",)),
    nn.ELU: (F.elu, ("alpha",)),
    nn.CELU: (F.celu, ("alpha",)),
    nn.SELU: (F.selu, ()),
    nn.GELU: (F.gelu, ("approximate",)),
    nn.SiLU: (F.silu, ()),
    nn.Mish: (F.mish, ()),
    nn.Softplus: (F.softplus, ("beta", "threshold")),
    nn.Softsign: (F.softsign, ()),
    nn.Tanhshrink: (F.tanhshrink, ()),
    nn.Hardshrink: (F.hardshrink, ("lambd",)),
    nn.Softshrink: (F.softshrink, ("lambd",)),
    nn.Hardtanh: (F.hardtanh, ("min_val", "max_val")),
    nn.Hardswish: (F.hardswish, ()),
    nn.Hardsigmoid: (F.hardsigmoid, ()),
    nn.LogSigmoid: (F.logsigmoid, ()),
    nn.Threshold: (F.threshold, ("threshold", "value")),
}

_NAMES = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_not",
    "ceil",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "fix",
    "floor",
    "frac",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "logit",
    "nan_to_num",
    "neg",
    "negative",
    "positive",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sgn",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "zeros_like",
    "ones_like",
    "full_like",
    "detach",
]
_METHODS = ["float", "double", "half", "bool", "int", "long", "to", "type"]
_FUNCTIONAL = [
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "celu",
    "selu",
    "gelu",
    "silu",
    "mish",
    "softplus",
    "softsign",
    "tanhshrink",
    "hardshrink",
    "softshrink",
    "hardtanh",
    "hardswish",
    "hardsigmoid",
    "logsigmoid",
    "threshold",
    "tanh",
    "sigmoid",
]

ELEMENTWISE = [
    *(getattr(torch, name) for name in _NAMES if hasattr(torch, name)),
    *(getattr(torch.Tensor, name) for name in (*_NAMES, *_METHODS) if hasattr(torch.Tensor, name)),
    *(getattr(F, name) for name in _FUNCTIONAL),
    operator.neg,
    operator.pos,
    operator.abs,
    operator.inv,
]

_IN_PLACE = {
    getattr(home, f"{name}_"): getattr(home, name)
    for home in (torch, torch.Tensor, F)
    for name in {*_NAMES, *_FUNCTIONAL}
    if hasattr(home, f"{name}_") and hasattr(home, name)
}
"""In-place forms to the functions that they are here: values of the fused graph are never overwritten."""


@function_rule(*dict.fromkeys(ELEMENTWISE))
def elementwise(fuser: Fuser, function: Any, input: Value, *args: Any, **kwargs: Any) -> Any:
    if any(isinstance(value.example, Tensor) for value in values_in((args, kwargs))):
        return fuser.vectorised(function, (input, *args), kwargs)
    options = {key: value for key, value in kwargs.items() if key not in ("inplace", "memory_format")}
    return Value(fuser.emit(function, input.node, *nodes_of(args), **nodes_of(options)), input.layout)


@function_rule(torch.clone, torch.Tensor.clone, torch.Tensor.contiguous)
def unchanged(fuser: Fuser, function: Any, input: Value, *args: Any, **kwargs: Any) -> Value:
    """Values of the fused graph are never overwritten by others, so that a copy is not needed."""
    return input


@function_rule(*_IN_PLACE)
def elementwise_in_place(fuser: Fuser, function: Any, input: Value, *args: Any, **kwargs: Any) -> Any:
    return fuser.function(_IN_PLACE[function], (input, *args), kwargs)


@module_rule(*_MODULES)
def activation(fuser: Fuser, module: nn.Module, path: str, input: Value) -> Value:
    function, names = _MODULES[known_type(module)]  # type: ignore[index]
    options = {name: getattr(module, name) for name in names}
    return Value(fuser.emit(function, input.node, **options), input.layout)


@module_rule(Scale)
def scale(fuser: Fuser, module: Scale, path: str, input: Value) -> Value:
    if module.factor == 1.0:
        return input
    return Value(fuser.emit(torch.mul, input.node, module.factor), input.layout)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """PReLU of ``(F, N, C, ...)`` with slopes ``(F, C or 1)``."""
    tail = (1,) * (input.dim() - 3)
    slope = weight.view(weight.shape[0], 1, weight.shape[1], *tail) if input.dim() > 2 else weight
    return torch.where(input >= 0, input, input * slope)


@module_rule(nn.PReLU)
def prelu_layer(fuser: Fuser, module: nn.PReLU, path: str, input: Value) -> Value:
    return Value(fuser.emit(prelu, fuser.first(input), fuser.optional(path, "weight")), Layout.FIRST)


@module_rule(nn.Softmax, nn.LogSoftmax, nn.Softmin)
def softmax_layer(fuser: Fuser, module: nn.Softmax, path: str, input: Value) -> Any:
    functions: dict[type[nn.Module], Any] = {
        nn.Softmax: torch.softmax,
        nn.LogSoftmax: torch.log_softmax,
        nn.Softmin: F.softmin,
    }
    dim = module.dim
    if dim is None:
        dim = 0 if fuser.rank(input) in (0, 1, 3) else 1
    return fuser.function(functions[known_type(module)], (input,), {"dim": dim})  # type: ignore[index]


@module_rule(nn.Softmax2d)
def softmax2d_layer(fuser: Fuser, module: nn.Softmax2d, path: str, input: Value) -> Any:
    return fuser.function(torch.softmax, (input, -3), {})


@module_rule(nn.GLU)
def glu_layer(fuser: Fuser, module: nn.GLU, path: str, input: Value) -> Any:
    return fuser.function(F.glu, (input,), {"dim": module.dim})
