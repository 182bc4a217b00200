"""Attention: the trials join the batch, or the batch and the heads, of ordinary attention kernels."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.families.dropout import dropped
from tuning.core.hydro.families.linear import linear
from tuning.core.hydro.fused_graph import Fuser, Layout, Value, function_rule, module_rule
from tuning.core.hydro.layers import Attention


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    gqa: bool,
) -> Tensor:
    """``F.scaled_dot_product_attention`` of ``(F, N, ..., L, d)``, the trials merged into the batch."""
    q, k, v = (tensor.flatten(0, 1) for tensor in (query, key, value))
    options: dict[str, Any] = {"enable_gqa": True} if gqa else {}
    result = F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale, **options)
    return result.view(*query.shape[:2], *result.shape[1:])


def merged_mask(mask: Tensor, trials: int, rank: int) -> Tensor:
    """A mask shared by the trials, as broadcast over their merged batches."""
    if mask.dim() < rank or mask.shape[0] == 1:
        return mask
    return mask.repeat(trials, *(1,) * (mask.dim() - 1))


def logits_of(
    query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, scale: float | None, gqa: bool
) -> Tensor:
    """Scaled products of queries and keys ``(..., L, d)`` plus mask: ``(..., L, S)``."""
    if gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    logits = torch.matmul(query * factor, key.transpose(-2, -1))
    if causal:
        future = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).triu(1)
        logits = logits.masked_fill(future, -math.inf)
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask
    return logits


def weighted(weights: Tensor, value: Tensor, gqa: bool) -> Tensor:
    """Attention weights ``(..., L, S)`` times values ``(..., S, d)``."""
    if gqa:
        value = value.repeat_interleave(weights.shape[-3] // value.shape[-3], -3)
    return torch.matmul(weights, value)


def scaled_attention(
    fuser: Fuser,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    gqa: bool,
) -> Value:
    """Attention of every trial; with dropout, masks from the trials' own streams."""
    rank = fuser.rank(query)
    if mask is not None and mask.is_per_trial and fuser.rank(mask) != rank:
        raise FuseError("an attention mask computed from weights needs as many dimensions as the query has")
    if dropout == 0.0 and rank == 4 and (mask is None or not mask.is_per_trial):
        node = None
        if mask is not None:
            node = fuser.emit(merged_mask, mask.node, fuser.trials, rank)
        operands = [fuser.first(item) for item in (query, key, value)]
        return Value(fuser.emit(attend, *operands, node, causal, scale, gqa), Layout.FIRST)
    mask_node = None
    if mask is not None:
        mask_node = mask.node if mask.layout is Layout.SHARED else fuser.first(mask)
    logits = fuser.emit(logits_of, fuser.first(query), fuser.first(key), mask_node, causal, scale, gqa)
    weights = Value(fuser.emit(torch.softmax, logits, -1), Layout.FIRST)
    weights = dropped(fuser, weights, dropout)
    return Value(fuser.emit(weighted, weights.node, fuser.first(value), gqa), Layout.FIRST)


@module_rule(Attention)
def attention_layer(
    fuser: Fuser,
    module: Attention,
    path: str,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
) -> Value:
    dropout = module.dropout if fuser.training else 0.0
    return scaled_attention(
        fuser, query, key, value, mask, dropout, module.causal, module.scale, module.grouped
    )


@function_rule(F.scaled_dot_product_attention, stochastic=True)
def attention_function(
    fuser: Fuser,
    function: Any,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    return scaled_attention(fuser, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def attention_mask(mask: Tensor | None, padding: Tensor | None, heads: int, like: Tensor) -> Tensor:
    """One additive mask, broadcast to ``(N, heads, L, S)``, from the two masks of multi-head attention."""
    total = None
    if mask is not None:
        total = _additive(mask, like)
        if total.dim() == 3:
            total = total.view(-1, heads, *total.shape[1:])
    if padding is not None:
        added = _additive(padding, like)[:, None, None, :]
        total = added if total is None else total + added
    assert total is not None
    return total


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill_(mask, -math.inf)


def heads_of(input: Tensor, heads: int) -> Tensor:
    """(F, N, L, E) to (F, N, heads, L, E / heads)."""
    return input.view(*input.shape[:3], heads, input.shape[3] // heads).transpose(2, 3)


def heads_of_parts(input: Tensor, heads: int, parts: int) -> tuple[Tensor, ...]:
    """(F, N, L, parts * E) to ``parts`` times (F, N, heads, L, E / heads)."""
    width = input.shape[3] // parts
    split = input.view(*input.shape[:3], parts, heads, width // heads)
    return split.permute(3, 0, 1, 4, 2, 5).unbind(0)


def joined_heads(input: Tensor) -> Tensor:
    """(F, N, heads, L, d) to (F, N, L, heads * d)."""
    return input.transpose(2, 3).flatten(3)


@module_rule(nn.MultiheadAttention)
def multihead_attention(
    fuser: Fuser,
    module: nn.MultiheadAttention,
    path: str,
    query: Value,
    key: Value,
    value: Value,
    key_padding_mask: Value | None = None,
    need_weights: bool = True,
    attn_mask: Value | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Value, Value | None]:
    if module.bias_k is not None or module.add_zero_attn:
        raise FuseError(
            "multi-head attention with add_bias_kv or add_zero_attn cannot be fused: switch it off"
        )
    if fuser.rank(query) != 3:
        raise FuseError("multi-head attention needs a batch dimension here: give it three-dimensional inputs")
    mask = _mask(fuser, module, query, attn_mask, key_padding_mask)
    q, k, v = _projected(fuser, module, path, query, key, value)
    dropout = module.dropout if fuser.training else 0.0
    if not need_weights:
        mixed, averages = scaled_attention(fuser, q, k, v, mask, dropout, False, None, False), None
    else:
        node = None if mask is None else mask.node
        logits = fuser.emit(logits_of, q.node, k.node, node, False, None, False)
        weights = dropped(fuser, Value(fuser.emit(torch.softmax, logits, -1), Layout.FIRST), dropout)
        mixed = Value(fuser.emit(weighted, weights.node, v.node, False), Layout.FIRST)
        averages = (
            Value(fuser.emit(torch.mean, weights.node, 2), Layout.FIRST) if average_attn_weights else weights
        )
    joined = Value(fuser.emit(joined_heads, mixed.node), Layout.FIRST)
    out = fuser.module(f"{path}.out_proj" if path else "out_proj", joined)
    return (out if module.batch_first else _swapped(fuser, out)), averages


def _swapped(fuser: Fuser, input: Value) -> Value:
    result: Value = fuser.function(torch.transpose, (input, 0, 1), {})
    return result


def _mask(
    fuser: Fuser, module: nn.MultiheadAttention, query: Value, mask: Value | None, padding: Value | None
) -> Value | None:
    given = [item for item in (mask, padding) if item is not None]
    if not given:
        return None
    if any(item.is_per_trial for item in given):
        raise FuseError("multi-head attention with a mask computed from weights cannot be fused")
    nodes = [None if item is None else item.node for item in (mask, padding)]
    return Value(fuser.emit(attention_mask, *nodes, module.num_heads, query.node), Layout.SHARED)


def _projected(
    fuser: Fuser, module: nn.MultiheadAttention, path: str, query: Value, key: Value, value: Value
) -> list[Value]:
    """Queries, keys and values of ``(F, N, heads, L, d)``."""
    bias = fuser.optional(path, "in_proj_bias")
    if query is key and key is value and module._qkv_same_embed_dim:
        weight = fuser.optional(path, "in_proj_weight", (0, 2, 1))
        batch = query if module.batch_first else _swapped(fuser, query)
        packed = linear(fuser, batch, weight, bias)  # type: ignore[arg-type]
        parts = fuser.emit(heads_of_parts, packed.node, module.num_heads, 3)
        return [Value(fuser.emit(_item, parts, index), Layout.FIRST) for index in range(3)]
    weights = _weights(fuser, module, path)
    projected = []
    for index, item in enumerate((query, key, value)):
        part = None if bias is None else fuser.emit(_rows, bias, index, 3)
        batch = item if module.batch_first else _swapped(fuser, item)
        result = linear(fuser, batch, weights[index], part)
        projected.append(Value(fuser.emit(heads_of, result.node, module.num_heads), Layout.FIRST))
    return projected


def _weights(fuser: Fuser, module: nn.MultiheadAttention, path: str) -> list[fx.Node]:
    if module._qkv_same_embed_dim:
        weight = fuser.optional(path, "in_proj_weight", (0, 2, 1))
        return [fuser.emit(_rows, weight, index, 3) for index in range(3)]
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    return [fuser.optional(path, name, (0, 2, 1)) for name in names]  # type: ignore[misc]


def _rows(tensor: Tensor, index: int, parts: int) -> Tensor:
    """Part ``index`` of the rows of each trial."""
    return tensor.chunk(parts, 1)[index]


def _item(parts: tuple[Tensor, ...], index: int) -> Tensor:
    return parts[index]
