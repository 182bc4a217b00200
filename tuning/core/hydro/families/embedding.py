"""Embedding tables: the trials side by side in one wide table, so that one look-up serves all of them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.fused_graph import Fuser, Layout, Value, function_rule, module_rule

# One row of the wide table holds this token's vectors of all trials: (V, F, D) in memory.
ORDER = (1, 0, 2)


def look_up(index: Tensor, weight: Tensor, padding_idx: int | None, scale_grad_by_freq: bool) -> Tensor:
    """Rows ``(..., )`` shared by all trials, of tables ``(F, V, D)``: ``(F, ..., D)``.

    The wide table keeps every trial's padding row out of the gradient.
    """
    trials, _, width = weight.shape
    wide = weight.transpose(0, 1).flatten(1)
    rows = F.embedding(index, wide, padding_idx, scale_grad_by_freq=scale_grad_by_freq)
    return rows.view(*index.shape, trials, width).movedim(-2, 0)


def look_up_own(index: Tensor, weight: Tensor, padding_idx: int | None, scale_grad_by_freq: bool) -> Tensor:
    """Rows ``(F, ...)`` of each trial's own, of tables ``(F, V, D)``: ``(F, ..., D)``."""
    tables = zip(index.unbind(0), weight.unbind(0), strict=True)
    return torch.stack(
        [F.embedding(i, w, padding_idx, scale_grad_by_freq=scale_grad_by_freq) for i, w in tables]
    )


def embed(
    fuser: Fuser, index: Value, weight: fx.Node, padding_idx: int | None, scale_grad_by_freq: bool
) -> Value:
    """``F.embedding`` with one table per trial."""
    if index.layout is Layout.SHARED:
        node = fuser.emit(look_up, index.node, weight, padding_idx, scale_grad_by_freq)
    else:
        node = fuser.emit(look_up_own, fuser.first(index), weight, padding_idx, scale_grad_by_freq)
    return Value(node, Layout.FIRST)


@module_rule(nn.Embedding)
def embedding_layer(fuser: Fuser, module: nn.Embedding, path: str, input: Value) -> Value:
    _check(module.max_norm, module.sparse)
    weight = fuser.optional(path, "weight", ORDER)
    assert weight is not None
    return embed(fuser, input, weight, module.padding_idx, module.scale_grad_by_freq)


@function_rule(F.embedding)
def embedding_function(
    fuser: Fuser,
    function: Any,
    input: Value,
    weight: Value,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    _check(max_norm, sparse)
    return embed(fuser, input, fuser.first(weight), padding_idx, scale_grad_by_freq)


def _check(max_norm: float | None, sparse: bool) -> None:
    if max_norm is not None:
        raise FuseError(
            "an embedding with max_norm rewrites its weights in the forward pass: set max_norm=None"
        )
    if sparse:
        raise FuseError("an embedding with sparse gradients cannot be fused: set sparse=False")
