"""One model chunk of one rank: consecutive blocks of pydoc-gpt's transformer, cut for tensor parallelism."""

import hashlib

import torch
from torch import Tensor
from torch.nn import functional as F

from workers.trainer.parallel.data import PackedBatch
from workers.trainer.parallel.groups import Group
from workers.trainer.parallel.layers import (
    WeightWork,
    cross_entropy,
    enter_split,
    leave_split,
    linear,
    scale,
)
from workers.trainer.parallel.spec import RunSpec
from workers.trainer.parallel.state import GRADIENT, ShardedState
from workers.trainer.parallel.tensors import region


class ModelChunk:
    """Layers `layers` of the model, as far as `state` holds them, computed with the ranks of `group`."""

    def __init__(self, spec: RunSpec, layers: range, state: ShardedState, group: Group) -> None:
        self.spec, self.layers, self.state, self.group = spec, layers, state, group
        self.weights, self.gradients = state.views["weight"], state.views[GRADIENT]
        self.heads = spec.heads // group.size
        self.first = layers.start == 0
        self.last = layers.stop == spec.layers

    def forward(self, x_TD: Tensor, batch: PackedBatch, work: WeightWork, noise: int) -> Tensor:
        """Run the blocks; (T, D) in and out. `noise` is the seed of the iteration's dropout."""
        for layer in self.layers:
            x_TD = x_TD + self._dropped(self._attention(x_TD, batch, layer, work), batch, layer, 0, noise)
            x_TD = x_TD + self._dropped(self._inner(x_TD, layer, work), batch, layer, 1, noise)
        return x_TD

    def embed(self, batch: PackedBatch) -> Tensor:
        """Return (T, D) embeddings; their gradient goes through `embedding_gradient`."""
        own_T, mine_T = self._own_symbols(batch.codes_T)
        rows_TD = self.weights["symbols.weight"][own_T] * mine_T[:, None]
        self.group.sum(rows_TD)
        return rows_TD + self.weights["positions"][batch.positions_T]

    def embedding_gradient(self, batch: PackedBatch, grad_TD: Tensor) -> None:
        """Add the embeddings' gradient to its buffers."""
        own_T, mine_T = self._own_symbols(batch.codes_T)
        self.gradients["symbols.weight"].index_add_(0, own_T, grad_TD * mine_T[:, None])
        self.gradients["positions"].index_add_(0, batch.positions_T, grad_TD)

    def loss(self, x_TD: Tensor, batch: PackedBatch, work: WeightWork, share: float) -> Tensor:
        """Return the summed cross entropy of a micro-batch times `share`."""
        h_TD = enter_split(self._norm(x_TD, "norm", work), self.group)
        logits_TV = self._linear(h_TD, "head", work)
        return cross_entropy(logits_TV, batch.targets_T, self._symbols_from("head.weight"), self.group, share)

    def _attention(self, x_TD: Tensor, batch: PackedBatch, layer: int, work: WeightWork) -> Tensor:
        path = f"blocks.{layer}"
        h_TD = enter_split(self._norm(x_TD, f"{path}.norm1", work), self.group)
        q, k, v = (
            self._linear(h_TD, f"{path}.{name}", work).unflatten(-1, (self.heads, -1)).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        parts = [t_HTE.split(batch.lengths, dim=1) for t_HTE in (q, k, v)]
        # one sequence at a time: packed neighbours must not see each other
        joined = [
            F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
            for q, k, v in zip(*parts, strict=True)
        ]
        a_TE = torch.cat(joined, dim=1).transpose(0, 1).flatten(1)
        return self._row_linear(a_TE, f"{path}.join", work)

    def _inner(self, x_TD: Tensor, layer: int, work: WeightWork) -> Tensor:
        path = f"blocks.{layer}"
        h_TD = enter_split(self._norm(x_TD, f"{path}.norm2", work), self.group)
        return self._row_linear(F.gelu(self._linear(h_TD, f"{path}.up", work)), f"{path}.down", work)

    def _norm(self, x_TD: Tensor, path: str, work: WeightWork) -> Tensor:
        weight, bias = f"{path}.weight", f"{path}.bias"
        owed = (work, self.gradients[weight], self.gradients[bias])
        plain_TD = F.layer_norm(x_TD, (self.spec.width,))
        return scale(plain_TD, self.weights[weight], self.weights[bias], owed)

    def _linear(self, x_TI: Tensor, path: str, work: WeightWork) -> Tensor:
        weight, bias = f"{path}.weight", f"{path}.bias"
        owed = (work, self.gradients[weight], self.gradients[bias])
        return linear(x_TI, self.weights[weight], self.weights[bias], owed)

    def _row_linear(self, x_TI: Tensor, path: str, work: WeightWork) -> Tensor:
        weight, bias = f"{path}.weight", f"{path}.bias"
        y_TD = linear(x_TI, self.weights[weight], None, (work, self.gradients[weight], None))
        return _add_bias(leave_split(y_TD, self.group), self.weights[bias], self.gradients[bias], work)

    def _dropped(self, x_TD: Tensor, batch: PackedBatch, layer: int, site: int, noise: int) -> Tensor:
        rate = self.spec.dropout
        if not rate:
            return x_TD
        key = f"{noise}/{batch.index}/{layer}/{site}".encode()
        digest = hashlib.blake2b(key, digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
        kept_TD = torch.rand(x_TD.shape, generator=generator).to(x_TD.device) >= rate
        return x_TD * (kept_TD / (1 - rate))

    def _symbols_from(self, name: str) -> int:
        box = self.state.boxes[self.state.tensors[name].layer]
        return region(self.state.tensors[name], box.start, box.end).start

    def _own_symbols(self, codes_T: Tensor) -> tuple[Tensor, Tensor]:
        rows = len(self.weights["symbols.weight"])
        own_T = codes_T - self._symbols_from("symbols.weight")
        mine_T = (own_T >= 0) & (own_T < rows)
        return own_T.clamp(0, rows - 1), mine_T.to(self.weights["positions"].dtype)


def _add_bias(x_TD: Tensor, bias_D: Tensor, gradient_D: Tensor, work: WeightWork) -> Tensor:
    """Add a bias after the shards were summed, so that it counts once."""
    if x_TD.requires_grad:
        x_TD = x_TD.view_as(x_TD)
        x_TD.register_hook(lambda grad_TD: work.add(lambda: gradient_D.add_(grad_TD.sum(0))))
    return x_TD + bias_D
