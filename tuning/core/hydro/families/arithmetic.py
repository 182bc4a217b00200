"""Arithmetic between values of different layouts and ranks, and matrix products of any operands."""

import operator
from typing import Any

import torch
from torch import Tensor, fx

from tuning.core.hydro.families.linear import product_of_rows
from tuning.core.hydro.fused_graph import Fuser, Layout, Value, function_rule, values_in

_NAMES = [
    "add",
    "sub",
    "mul",
    "div",
    "true_divide",
    "divide",
    "multiply",
    "subtract",
    "floor_divide",
    "pow",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "remainder",
    "fmod",
    "atan2",
    "lerp",
    "addcmul",
    "addcdiv",
    "masked_fill",
    "where",
    "float_power",
    "hypot",
    "logaddexp",
    "xlogy",
    "rsub",
]
_OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and_",
    "or_",
    "xor",
]

# Spelling in the user's model to the one form of it in the graph.
_FORM: dict[Any, Any] = {}
for _name in _NAMES:
    _form = getattr(torch, _name)
    for _home in (torch, torch.Tensor):
        for _spelling in (_name, f"{_name}_"):
            if hasattr(_home, _spelling):
                _FORM[getattr(_home, _spelling)] = _form
for _name in _OPERATORS:
    _FORM[getattr(operator, _name)] = getattr(operator, _name)
    _in_place = getattr(operator, f"i{_name.rstrip('_')}", None)
    if _in_place is not None:
        _FORM[_in_place] = getattr(operator, _name)

plain_sums = (operator.add, operator.sub, torch.add, torch.sub, torch.Tensor.add_)


def spread(value: Tensor, count: int) -> Tensor:
    """(F, ...) to (F, 1, ..., 1, ...) with ``count`` new dimensions: what broadcasting adds at the left."""
    return value.reshape(value.shape[0], *(1,) * count, *value.shape[1:])


def aligned(fuser: Fuser, value: Value, rank: int) -> fx.Node:
    """The node of an operand of a broadcast whose operands have up to ``rank`` dimensions in one trial."""
    if value.layout is Layout.SHARED:
        return value.node
    missing = rank - fuser.rank(value)
    first = fuser.first(value)
    return fuser.emit(spread, first, missing) if missing else first


def _packs(fuser: Fuser, tensors: list[Value]) -> bool:
    """Whether the operands broadcast the same way with the trials inside the channels."""
    trial = [value for value in tensors if value.is_per_trial]
    if not any(value.layout is Layout.PACKED for value in trial):
        return False
    shapes = [fuser.shape(value) for value in trial]
    rank = len(shapes[0])
    if any(len(shape) != rank or shape[1] != shapes[0][1] for shape in shapes):
        return False
    for value in tensors:
        if not value.is_per_trial:
            shape = fuser.shape(value)
            if len(shape) > rank or (len(shape) >= rank - 1 and shape[len(shape) - rank + 1] != 1):
                return False
    return True


@function_rule(*_FORM)
def broadcast(fuser: Fuser, function: Any, *args: Any, **kwargs: Any) -> Value:
    kwargs = {key: value for key, value in kwargs.items() if key != "out"}
    tensors = [value for value in values_in((args, kwargs)) if isinstance(value.example, Tensor)]
    if _packs(fuser, tensors):
        layout = Layout.PACKED
        replaced = {id(v): fuser.packed(v) if v.is_per_trial else v.node for v in tensors}
    else:
        layout = Layout.FIRST
        rank = max(fuser.rank(value) for value in tensors)
        replaced = {id(value): aligned(fuser, value, rank) for value in tensors}

    def operand(item: Any) -> Any:
        return replaced.get(id(item), item.node) if isinstance(item, Value) else item

    args, kwargs = fx.node.map_aggregate((args, kwargs), operand)
    return Value(fuser.emit(_FORM[function], *args, **kwargs), layout)


def matrix_product(left: Tensor, right: Tensor) -> Tensor:
    """``torch.matmul`` of ``(F, ..., n, k)`` and ``(F, k, m)`` without copying the right one."""
    return product_of_rows(left, right.transpose(1, 2), None)


@function_rule(
    torch.matmul,
    torch.Tensor.matmul,
    operator.matmul,
    torch.bmm,
    torch.Tensor.bmm,
    torch.mm,
    torch.Tensor.mm,
)
def matmul(fuser: Fuser, function: Any, left: Value, right: Value) -> Any:
    ranks = fuser.rank(left), fuser.rank(right)
    if min(ranks) < 2:
        return fuser.vectorised(torch.matmul, (left, right), {})
    if ranks[1] == 2 and right.is_per_trial and left.is_per_trial:
        node = fuser.emit(matrix_product, fuser.first(left), fuser.first(right))
    else:
        rank = max(ranks)
        node = fuser.emit(torch.matmul, aligned(fuser, left, rank), aligned(fuser, right, rank))
    return Value(node, Layout.FIRST)


@function_rule(torch.addmm, torch.baddbmm, torch.Tensor.addmm, torch.Tensor.baddbmm)
def add_matmul(
    fuser: Fuser, function: Any, input: Value, left: Value, right: Value, *, beta: float = 1, alpha: float = 1
) -> Any:
    result = fuser.function(torch.matmul, (left, right), {})
    if alpha != 1:
        result = fuser.function(torch.mul, (result, alpha), {})
    if beta != 1:
        input = fuser.function(torch.mul, (input, beta), {})
    return fuser.function(torch.add, (result, input), {})
