"""The order of images in memory where a model trains alone on a CPU: channels last, faster convolutions."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from tuning.core.hydro.families.convolution import plain_order
from tuning.core.hydro.memory_order import drops_by_element

_OF_IMAGES = (nn.Conv2d, nn.ConvTranspose2d)
_FUNCTIONS = (F.conv2d, F.conv_transpose2d, torch.conv2d, torch.conv_transpose2d, torch.convolution)


def prefer_channels_last(model: nn.Module) -> None:
    """Let the convolutions of a model over images work in channels-last order; values stay what they are.

    Only of a model whose graph is known: dropout by element would draw other masks, and a convolution that is
    1x1, strided and without groups must stay in plain order (see `_keeps_plain`), so it has to be a layer.
    """
    if not isinstance(model, fx.GraphModule) or drops_by_element(model):
        return
    if any(node.target in _FUNCTIONS for node in model.graph.nodes):
        return
    for layer in model.modules():
        if not isinstance(layer, _OF_IMAGES):
            continue
        if _keeps_plain(layer):
            layer.register_forward_pre_hook(_plain_input)
        else:
            layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)


def _keeps_plain(layer: nn.Conv2d | nn.ConvTranspose2d) -> bool:
    """The backward pass of PyTorch 2.13 for the CPU overruns its memory here in channels-last order."""
    strided = any(step > 1 for step in layer.stride)
    return strided and layer.groups == 1 and layer.weight[0, 0].numel() == 1


def _plain_input(layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(plain_order(value) if isinstance(value, Tensor) else value for value in inputs)
