"""Linear layers: one batched matrix product for all trials."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from tuning.core.hydro.fused_graph import Fuser, Layout, Value, function_rule, module_rule

# Products read the weight as (F, in, out); stored so, the gradient arrives in the order of the parameter.
ORDER = (0, 2, 1)


def product(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(F, N, in) times (F, out, in) plus (F, out) is (F, N, out)."""
    if bias is None:
        return torch.bmm(input, weight.transpose(1, 2))
    return torch.baddbmm(bias.unsqueeze(1), input, weight.transpose(1, 2))


def product_of_shared(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(..., in), the same for all trials, times (F, out, in) is (F, ..., out)."""
    rows = input.reshape(-1, input.shape[-1])
    result = product(rows.expand(weight.shape[0], *rows.shape), weight, bias)
    return result.view(weight.shape[0], *input.shape[:-1], weight.shape[1])


def product_of_rows(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(F, ..., in) times (F, out, in) is (F, ..., out)."""
    rows = input.reshape(input.shape[0], -1, input.shape[-1])
    return product(rows, weight, bias).view(*input.shape[:-1], weight.shape[1])


def rows_of(input: Tensor) -> Tensor:
    """(F, ..., in) to (F, rows, in)."""
    return input.reshape(input.shape[0], -1, input.shape[-1])


def unrowed(rows: Tensor, like: Tensor) -> Tensor:
    """(F, rows, out) to (F, ..., out), with the dimensions of ``like`` between."""
    return rows.view(*like.shape[:-1], rows.shape[-1])


def linear(fuser: Fuser, input: Value, weight: fx.Node, bias: fx.Node | None) -> Value:
    """``F.linear`` with one weight per trial."""
    rank = fuser.rank(input)
    if input.layout is Layout.SHARED and rank != 2:
        return Value(fuser.emit(product_of_shared, input.node, weight, bias), Layout.FIRST)
    first = fuser.first(input)
    if rank == 2:
        return Value(fuser.emit(product, first, weight, bias), Layout.FIRST)
    # As three calls, so that an activation can overwrite the product before it becomes a view.
    rows = fuser.emit(product, fuser.emit(rows_of, first), weight, bias)
    return Value(fuser.emit(unrowed, rows, first), Layout.FIRST)


@module_rule(nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)
def linear_layer(fuser: Fuser, module: nn.Linear, path: str, input: Value) -> Value:
    weight = fuser.optional(path, "weight", ORDER)
    assert weight is not None
    return linear(fuser, input, weight, fuser.optional(path, "bias"))


@function_rule(F.linear)
def linear_function(
    fuser: Fuser, function: Any, input: Value, weight: Value, bias: Value | None = None
) -> Value:
    bias_node = None if bias is None else fuser.first(bias)
    return linear(fuser, input, fuser.first(weight), bias_node)


@module_rule(nn.Identity)
def identity(fuser: Fuser, module: nn.Module, path: str, input: Value) -> Value:
    return input
