"""Every tensor of the model by global name and shape, and how a box of it is cut out.

Names are those of pydoc-gpt's own state dict, so that an exported model loads there. A tensor belongs to a
layer of the planner's count: the embedding to the first layer, the final norm and the head to the last.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from jobs.core.layout.transfer import Box
from workers.trainer.parallel.spec import RunSpec


@dataclass(frozen=True, slots=True)
class LogicalTensor:
    """A tensor of the whole model; `split` is the dimension tensor parallelism cuts, None if every shard
    holds all of it; `spread` is the standard deviation of its first values, None for a constant `fill`."""

    name: str
    layer: int
    shape: tuple[int, ...]
    split: int | None = None
    spread: float | None = None
    fill: float = 0.0

    @property
    def decays(self) -> bool:
        """Whether weight decay applies: to matrices, not to biases and norms."""
        return len(self.shape) > 1


class Region(NamedTuple):
    """Rows `start` to `end` - 1 along the split dimension; for a tensor that is not split, its first
    dimension, whole."""

    start: int
    end: int


def region(tensor: LogicalTensor, start: Fraction, end: Fraction) -> Region:
    """The part of a tensor inside [start, end) of the tensor-parallel dimension."""
    if tensor.split is None:
        return Region(0, tensor.shape[0])
    size = tensor.shape[tensor.split]
    return Region(int(size * start), int(size * end))


def shape_in(tensor: LogicalTensor, box: Box) -> tuple[int, ...]:
    """The shape of a tensor's part inside a box."""
    part = region(tensor, box.start, box.end)
    dim = tensor.split or 0
    return (*tensor.shape[:dim], part.end - part.start, *tensor.shape[dim + 1 :])


def initial(tensor: LogicalTensor, box: Box, seed: int) -> Tensor:
    """The first values of a box: the same bits whatever the layout, for the whole tensor is drawn."""
    if tensor.spread is None:
        return torch.full(shape_in(tensor, box), tensor.fill)
    generator = torch.Generator().manual_seed(_seed(seed, tensor.name))
    whole = torch.randn(tensor.shape, generator=generator) * tensor.spread
    part = region(tensor, box.start, box.end)
    return whole.narrow(tensor.split or 0, part.start, part.end - part.start)


def _seed(seed: int, name: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def model_tensors(spec: RunSpec, symbols: int) -> tuple[tuple[LogicalTensor, ...], ...]:
    """All tensors of the model, by layer."""
    last = spec.layers - 1
    layers = [list(_block(layer, spec)) for layer in range(spec.layers)]
    width = spec.width
    layers[0][:0] = [
        LogicalTensor("symbols.weight", 0, (symbols, width), 0, 0.02),
        LogicalTensor("positions", 0, (spec.context, width), None, 0.02),
    ]
    layers[last] += [
        LogicalTensor("norm.weight", last, (width,), fill=1.0),
        LogicalTensor("norm.bias", last, (width,)),
        LogicalTensor("head.weight", last, (symbols, width), 0, 0.02),
        LogicalTensor("head.bias", last, (symbols,), 0),
    ]
    return tuple(tuple(rows) for rows in layers)


def _block(layer: int, spec: RunSpec) -> Sequence[LogicalTensor]:
    width, inner = spec.width, 4 * spec.width
    into_residual = 0.02 / (2 * spec.layers) ** 0.5

    def linear(name: str, outputs: int, inputs: int, split: int) -> list[LogicalTensor]:
        spread = 0.02 if split == 0 else into_residual
        path = f"blocks.{layer}.{name}"
        return [
            LogicalTensor(f"{path}.weight", layer, (outputs, inputs), split, spread),
            LogicalTensor(f"{path}.bias", layer, (outputs,), 0 if split == 0 else None),
        ]

    def norm(name: str) -> list[LogicalTensor]:
        path = f"blocks.{layer}.{name}"
        return [
            LogicalTensor(f"{path}.weight", layer, (width,), fill=1.0),
            LogicalTensor(f"{path}.bias", layer, (width,)),
        ]

    return [
        *norm("norm1"),
        *(row for name in ("query", "key", "value") for row in linear(name, width, width, 0)),
        *linear("join", width, width, 1),
        *norm("norm2"),
        *linear("up", inner, width, 0),
        *linear("down", width, inner, 1),
    ]
