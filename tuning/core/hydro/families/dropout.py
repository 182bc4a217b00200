"""Dropout: each trial's mask from its own random stream, in the order in which the plain model would draw."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuning.core.hydro.fused_graph import Fuser, Layout, Value, function_rule, known_type, module_rule
from tuning.core.hydro.layers import DropPath
from tuning.core.hydro.random_streams import RandomStreams

Order = tuple[int, ...] | None


def full_mask(streams: RandomStreams, input: Tensor, p: float, order: Order = None) -> Tensor:
    """A mask with an entry per element of ``(F, N, ...)``, drawn in this order of one trial's dimensions."""
    return streams.keep_mask(input.shape[1:], 1.0 - p, input.dtype, order)


def channel_mask(streams: RandomStreams, input: Tensor, p: float, order: Order = None) -> Tensor:
    """A mask with an entry per sample and channel of ``(F, N, C, ...)``."""
    shape = (*input.shape[1:3], *(1,) * (input.dim() - 3))
    return streams.keep_mask(shape, 1.0 - p, input.dtype)


def sample_mask(streams: RandomStreams, input: Tensor, p: float, order: Order = None) -> Tensor:
    """A mask with an entry per sample of ``(F, N, ...)``."""
    shape = (input.shape[1], *(1,) * (input.dim() - 2))
    return streams.keep_mask(shape, 1.0 - p, input.dtype)


def masked(input: Tensor, mask: Tensor) -> Tensor:
    """The input times a mask that has no gradient."""
    return input * mask


def alpha_dropped(input: Tensor, mask: Tensor, p: float) -> Tensor:
    """SELU's dropout: dropped entries saturate negatively, then mean and variance are restored.

    Klambauer et al., "Self-Normalizing Neural Networks", arXiv 1706.02515, section 3.
    """
    saturation = 1.7580993408473766
    scale = 1.0 / ((saturation**2 * p + 1.0) * (1.0 - p)) ** 0.5
    kept = (mask > 0).to(input.dtype)
    return input * (kept * scale) + ((kept - 1.0) * (saturation * scale) + saturation * scale * p)


Mask = Callable[[RandomStreams, Tensor, float, Order], Tensor]

_MASKS: dict[type[nn.Module], Mask] = {
    nn.Dropout: full_mask,
    nn.Dropout1d: channel_mask,
    nn.Dropout2d: channel_mask,
    nn.Dropout3d: channel_mask,
    nn.AlphaDropout: full_mask,
    nn.FeatureAlphaDropout: channel_mask,
    DropPath: sample_mask,
}
_FUNCTIONS: dict[Any, tuple[Mask, bool]] = {
    F.dropout: (full_mask, False),
    torch.dropout: (full_mask, False),
    F.dropout1d: (channel_mask, False),
    F.dropout2d: (channel_mask, False),
    F.dropout3d: (channel_mask, False),
    F.alpha_dropout: (full_mask, True),
    F.feature_alpha_dropout: (channel_mask, True),
}


def dropped(
    fuser: Fuser,
    input: Value,
    p: float,
    mask: Mask = full_mask,
    alpha: bool = False,
    order: Order = None,
) -> Value:
    """The input with elements, channels or samples dropped per trial with probability ``p``."""
    if p == 0.0:
        return input
    first = fuser.first(input)
    in_order = order is None or order == tuple(sorted(order))
    drawn = Value(fuser.write(mask, fuser.streams, first, p, None if in_order else order), Layout.FIRST)
    if alpha:
        return Value(fuser.emit(alpha_dropped, first, drawn.node, p), Layout.FIRST)
    if input.layout is Layout.PACKED:
        return Value(fuser.emit(masked, input.node, fuser.packed(drawn)), Layout.PACKED)
    return Value(fuser.emit(masked, first, drawn.node), Layout.FIRST)


@module_rule(*_MASKS)
def dropout_layer(fuser: Fuser, module: nn.Dropout, path: str, input: Value) -> Value:
    if not fuser.training:
        return input
    kind = known_type(module)
    alpha = kind in (nn.AlphaDropout, nn.FeatureAlphaDropout)
    return dropped(fuser, input, module.p, _MASKS[kind], alpha, fuser.drawing_order)  # type: ignore[index]


@function_rule(*_FUNCTIONS, stochastic=True)
def dropout_function(
    fuser: Fuser,
    function: Any,
    input: Value,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Value:
    if not training:
        return input
    mask, alpha = _FUNCTIONS[function]
    return dropped(fuser, input, p, mask, alpha, fuser.drawing_order)
