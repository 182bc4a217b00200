"""Small layers without weights that stand in for function calls in a recorded model.

They exist because a constant in a graph cannot know whether the model trains or evaluates, and because width
rules and trial fusion need a place to put a factor. None of them adds anything to ``state_dict``. All are
single nodes for ``hydro.trace`` (``traced_as_leaf``).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Scale(nn.Module):
    """Multiplies by a constant: muP's output multiplier, its attention 1/d, a residual branch's depth factor.

    ``reason`` is ``output``, ``attention``, ``sum``, ``softmax`` or ``depth``.
    """

    traced_as_leaf = True

    def __init__(self, factor: float, reason: str = "output") -> None:
        super().__init__()
        self.factor = factor
        self.reason = reason

    def forward(self, input: Tensor) -> Tensor:
        return input if self.factor == 1.0 else input * self.factor

    def extra_repr(self) -> str:
        return f"{self.factor:g}, {self.reason}"


class Attention(nn.Module):
    """``F.scaled_dot_product_attention`` as a layer: dropout in training only, the scale an attribute.

    ``forward(query, key, value, mask)`` takes (..., heads, length, head size) as the function does;
    ``scale=None`` means 1/sqrt(head size), and ``grouped`` lets several query heads share a key head.
    """

    traced_as_leaf = True

    def __init__(
        self, dropout: float = 0.0, causal: bool = False, scale: float | None = None, grouped: bool = False
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.causal = causal
        self.scale = scale
        self.grouped = grouped

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        options = {"enable_gqa": True} if self.grouped else {}
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal,
            scale=self.scale,
            **options,
        )

    def extra_repr(self) -> str:
        return f"dropout={self.dropout:g}, causal={self.causal}, scale={self.scale}, grouped={self.grouped}"


class DropPath(nn.Module):
    """Stochastic depth: training drops a sample's whole branch with probability ``p`` and rescales the rest.

    Huang et al., "Deep Networks with Stochastic Depth", arXiv 1603.09382.
    """

    traced_as_leaf = True

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return input
        keep = 1.0 - self.p
        mask = torch.empty(input.shape[0], *[1] * (input.dim() - 1), dtype=input.dtype, device=input.device)
        return input * mask.bernoulli_(keep) / keep if keep > 0.0 else torch.zeros_like(input)

    def extra_repr(self) -> str:
        return f"p={self.p:g}"


class FunctionalBatchNorm(nn.Module):
    """``F.batch_norm`` over tensors that live elsewhere: (input, mean, variance, weight, bias)."""

    traced_as_leaf = True

    def __init__(self, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum = momentum
        self.eps = eps

    def forward(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        use_batch = self.training or running_mean is None
        return F.batch_norm(
            input, running_mean, running_var, weight, bias, use_batch, self.momentum, self.eps
        )
