"""Layers of the built-in programs: one rank's part, as plain functions on a dictionary of weights."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.trainer.overlap.programs.collectives import enter, exchange, gather, leave, scatter, shift

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Size:
    """Of a whole model: batch x tokens x width, heads, hidden width of the MLP, layers; how many ranks."""

    ranks: int
    batch: int
    tokens: int
    width: int
    heads: int
    hidden: int
    layers: int
    dtype: torch.dtype = torch.bfloat16

    @property
    def head_size(self) -> int:
        return self.width // self.heads


def norm(x: Tensor, weights: Weights, name: str) -> Tensor:
    """Layer norm over the last dimension."""
    return F.layer_norm(x, (x.shape[-1],), weights[f"{name}.gain"], weights[f"{name}.bias"])


def heads_of(x: Tensor, heads: int) -> Tensor:
    """(B, T, heads * size) -> (B, heads, T, size)."""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    """(B, heads, T, size) -> (B, T, heads * size)."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def attend(x: Tensor, weights: Weights, name: str, heads: int, *, causal: bool = True) -> Tensor:
    """Queries, keys and values from one product each, attention, no output projection."""
    query, key, value = (heads_of(x @ weights[f"{name}.{part}"], heads) for part in "qkv")
    return joined(F.scaled_dot_product_attention(query, key, value, is_causal=causal))


def tensor_parallel_block(x: Tensor, weights: Weights, name: str, heads: int, group: str) -> Tensor:
    """Attention and MLP, columns then rows split over the group, an all-reduce after each."""
    mixed = attend(enter(norm(x, weights, f"{name}.n1"), group), weights, name, heads)
    x = x + leave(mixed @ weights[f"{name}.o"], group)
    inner = F.gelu(enter(norm(x, weights, f"{name}.n2"), group) @ weights[f"{name}.up"])
    return x + leave(inner @ weights[f"{name}.down"], group)


def gathered_block(x: Tensor, weights: Weights, name: str, heads: int, group: str) -> Tensor:
    """The same with activations split along the tokens outside: all-gather before, reduce-scatter after."""
    mixed = attend(gather(norm(x, weights, f"{name}.n1"), 1, group), weights, name, heads)
    x = x + scatter(mixed @ weights[f"{name}.o"], 1, group)
    inner = F.gelu(gather(norm(x, weights, f"{name}.n2"), 1, group) @ weights[f"{name}.up"])
    return x + scatter(inner @ weights[f"{name}.down"], 1, group)


def mlp(x: Tensor, weights: Weights, name: str) -> Tensor:
    """An MLP that every rank holds whole."""
    return F.gelu(x @ weights[f"{name}.up"]) @ weights[f"{name}.down"]


def ulysses_block(x: Tensor, weights: Weights, name: str, heads: int, ranks: int, group: str) -> Tensor:
    """Tokens split over the ranks; for attention the heads are, by an all-to-all there and back.

    (DeepSpeed Ulysses, arXiv 2309.14509.) Weights are whole on every rank.
    """
    n = norm(x, weights, f"{name}.n1")
    query, key, value = (_to_heads(n @ weights[f"{name}.{part}"], heads, ranks, group) for part in "qkv")
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    x = x + _to_tokens(mixed, ranks, group) @ weights[f"{name}.o"]
    return x + mlp(norm(x, weights, f"{name}.n2"), weights, name)


def _to_heads(x: Tensor, heads: int, ranks: int, group: str) -> Tensor:
    """(B, T/ranks, heads * size) -> (B, heads/ranks, T, size)."""
    batch, tokens, width = x.shape
    parts = x.view(batch, tokens, ranks, heads // ranks, width // heads).permute(2, 0, 1, 3, 4)
    held = exchange(parts, group)
    return held.permute(1, 3, 0, 2, 4).reshape(batch, heads // ranks, ranks * tokens, width // heads)


def _to_tokens(x: Tensor, ranks: int, group: str) -> Tensor:
    """The inverse: (B, heads/ranks, T, size) -> (B, T/ranks, heads * size)."""
    batch, heads, tokens, size = x.shape
    parts = x.view(batch, heads, ranks, tokens // ranks, size).permute(2, 0, 3, 1, 4)
    held = exchange(parts, group)
    return held.permute(1, 2, 0, 3, 4).reshape(batch, tokens // ranks, ranks * heads * size)


def ring_block(x: Tensor, weights: Weights, name: str, heads: int, ranks: int, group: str) -> Tensor:
    """Tokens split over the ranks; keys and values travel round the ring (arXiv 2310.01889), unmasked."""
    n = norm(x, weights, f"{name}.n1")
    query, key, value = (heads_of(n @ weights[f"{name}.{part}"], heads) for part in "qkv")
    x = x + joined(_ring_attention(query, key, value, ranks, group)) @ weights[f"{name}.o"]
    return x + mlp(norm(x, weights, f"{name}.n2"), weights, name)


def _ring_attention(query: Tensor, key: Tensor, value: Tensor, ranks: int, group: str) -> Tensor:
    """Softmax over all tokens, one rank's keys at a time, with running maximum and sum."""
    scale = query.shape[-1] ** -0.5
    total = torch.zeros_like(query)
    weight = highest = None
    for hop in range(ranks):
        scores = (query @ key.transpose(-1, -2)) * scale
        top = scores.amax(-1, keepdim=True).detach()
        new = top if highest is None else torch.maximum(highest, top)
        part = torch.exp(scores - new)
        if weight is None or highest is None:
            total, weight = part @ value, part.sum(-1, keepdim=True)
        else:
            shrink = torch.exp(highest - new)
            total, weight = total * shrink + part @ value, weight * shrink + part.sum(-1, keepdim=True)
        highest = new
        if hop < ranks - 1:
            key, value = shift(key, 1, group), shift(value, 1, group)
    assert weight is not None
    return total / weight


def expert_block(x: Tensor, weights: Weights, name: str, heads: int, experts: int, group: str) -> Tensor:
    """Attention on every rank, experts spread over the ranks with a fixed capacity per sequence (GShard).

    Because the capacity counts within a sequence, samples do not compete for places: the batch can be tiled.
    """
    n = norm(x, weights, f"{name}.n1")
    x = x + attend(n, weights, name, heads) @ weights[f"{name}.o"]
    return x + _experts(norm(x, weights, f"{name}.n2"), weights, name, experts, group)


def _experts(x: Tensor, weights: Weights, name: str, experts: int, group: str) -> Tensor:
    batch, tokens, width = x.shape
    capacity = 2 * tokens // experts
    odds = torch.softmax(x @ weights[f"{name}.router"], -1)
    gate, chosen = odds.max(-1)
    taken = (chosen.unsqueeze(-1) == torch.arange(experts)).to(x.dtype)
    # Counted in single precision: a place beyond 256 is no bfloat16.
    place = ((taken.float().cumsum(1) - 1) * taken).sum(-1)
    slot = place.unsqueeze(-1) == torch.arange(capacity)
    # (B, T, experts, capacity): where each token goes, or nowhere when its expert is full.
    route = taken.unsqueeze(-1) * slot.to(x.dtype).unsqueeze(-2)
    flat = route.view(batch, tokens, experts * capacity)
    sent = flat.transpose(1, 2) @ x
    local = weights[f"{name}.up"].shape[0]
    packed = sent.view(batch, experts // local, local, capacity, width).transpose(0, 1)
    held = exchange(packed, group)
    rows = held.permute(2, 0, 1, 3, 4).reshape(local, -1, width)
    made = torch.bmm(F.gelu(torch.bmm(rows, weights[f"{name}.up"])), weights[f"{name}.down"])
    back = made.view(local, experts // local, batch, capacity, width).permute(1, 2, 0, 3, 4)
    returned = exchange(back, group).transpose(0, 1).reshape(batch, experts * capacity, width)
    return (flat @ returned) * gate.unsqueeze(-1)
