"""The built-in programs by name, each at the size that is scheduled and at one that can be executed here."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from jobs.core.overlap.builtin import BUILT_IN_PROGRAMS, INFERENCE
from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.program import Program
from workers.trainer.overlap.programs.collectives import enter
from workers.trainer.overlap.programs.layers import (
    Size,
    Weights,
    expert_block,
    gathered_block,
    ring_block,
    tensor_parallel_block,
    ulysses_block,
)

GROUP = "ranks"
REHEARSAL_RANKS = 4
_SMALL = Size(REHEARSAL_RANKS, 4, 16, 32, 4, 64, 2, torch.float32)

Block = Callable[[Tensor, Weights, str, Size], Tensor]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class BuiltIn:
    """One kind of parallelism.

    Attributes:
        split: the part of the tokens that a rank holds outside of attention: 1 or 1 / ranks.
        dealt: sizes of which every rank gets an equal part.
        replicated: weights that every rank holds whole; their gradients are summed over the ranks.
        experts: per rank.
    """

    name: str
    about: str
    block: Block
    shapes: Callable[[Size], Shapes]
    size: Size
    train: bool
    splits_tokens: bool
    dealt: tuple[str, ...]
    replicated: tuple[str, ...] = ()

    def program(self, ranks: int, **changes: int) -> Program:
        """At its full size, or another one, which is only simulated.

        Raises:
            ProgramRefused: something cannot be dealt to the ranks in equal parts.
        """
        wanted: dict[str, Any] = {"ranks": ranks, **changes}
        size = replace(self.size, **wanted)
        self._check(size)
        return self._at(size, lambda: self.small(REHEARSAL_RANKS))

    def _check(self, size: Size) -> None:
        if size.width % size.heads:
            raise ProgramRefused(f"size: a width of {size.width} cannot be cut into {size.heads} heads")
        dealt = {name: getattr(size, name) for name in self.dealt}
        for name, count in dealt.items():
            if count % size.ranks:
                raise ProgramRefused(f"size: {name} = {count} cannot be dealt to {size.ranks} ranks")

    def small(self, ranks: int) -> Program:
        """At a size that is executed to check the numbers."""
        return self.sized(ranks, layers=min(2, self.size.layers))

    def sized(self, ranks: int, **changes: Any) -> Program:
        """At the small size, changed here and there."""
        return self._at(replace(_SMALL, ranks=ranks, **changes), None)

    def _at(self, size: Size, rehearsal: Callable[[], Program] | None) -> Program:
        shapes = self.shapes(size)
        params = {
            f"{layer}.{name}": torch.empty(shape, dtype=size.dtype, device="meta")
            for layer in range(size.layers)
            for name, shape in shapes.items()
        }
        tokens = size.tokens // size.ranks if self.splits_tokens else size.tokens
        x = torch.empty((size.batch, tokens, size.width), dtype=size.dtype, device="meta")
        groups = {GROUP: list(range(size.ranks))}
        return Program(
            self._step(size), params, {"x": x}, groups, {"x": 0}, train=self.train, rehearsal=rehearsal
        )

    def _step(self, size: Size) -> Callable[[dict[str, Any], dict[str, Any]], Any]:
        def step(params: dict[str, Any], inputs: dict[str, Any]) -> Any:
            weights = params
            if self.train and self.replicated:
                weights = {
                    name: enter(w, GROUP) if name.split(".", 1)[1] in self.replicated else w
                    for name, w in params.items()
                }
            x = inputs["x"]
            for layer in range(size.layers):
                x = self.block(x, weights, str(layer), size)
            return x.float().pow(2).mean() if self.train else x

        return step


def _norms(size: Size) -> Shapes:
    return {f"{name}.{part}": (size.width,) for name in ("n1", "n2") for part in ("gain", "bias")}


def _split_weights(size: Size) -> Shapes:
    """Columns, then rows, over the ranks."""
    width, inner, hidden = size.width, size.width // size.ranks, size.hidden // size.ranks
    shapes = dict.fromkeys("qkv", (width, inner)) | {"o": (inner, width)}
    return _norms(size) | shapes | {"up": (width, hidden), "down": (hidden, width)}


def _whole_weights(size: Size) -> Shapes:
    shapes = dict.fromkeys("qkvo", (size.width, size.width))
    return _norms(size) | shapes | {"up": (size.width, size.hidden), "down": (size.hidden, size.width)}


def _expert_weights(size: Size) -> Shapes:
    """One expert a rank."""
    shapes = dict.fromkeys("qkvo", (size.width, size.width))
    experts = {"up": (1, size.width, size.hidden), "down": (1, size.hidden, size.width)}
    return _norms(size) | shapes | {"router": (size.width, size.ranks)} | experts


_NORMS = ("n1.gain", "n1.bias", "n2.gain", "n2.bias")
_WHOLE = (*_NORMS, "q", "k", "v", "o", "up", "down")
# Models of the size of GPT-3 6.7B; long sequences where the tokens are split; Qwen3-MoE has narrow experts.
_TRAINED = Size(8, 8, 2048, 4096, 32, 16384, 2)
_TRAINED_LONG = replace(_TRAINED, batch=4, tokens=32768)
_TRAINED_EXPERTS = replace(_TRAINED, tokens=4096, hidden=4096)
_LONG = replace(_TRAINED, batch=4, tokens=16384)
_SIZES = {
    "ulysses-transformer": _TRAINED_LONG,
    "ring-transformer": _TRAINED_LONG,
    "moe-transformer": _TRAINED_EXPERTS,
}


def _tensor(x: Tensor, w: Weights, layer: str, size: Size) -> Tensor:
    return tensor_parallel_block(x, w, layer, size.heads // size.ranks, GROUP)


def _gathered(x: Tensor, w: Weights, layer: str, size: Size) -> Tensor:
    return gathered_block(x, w, layer, size.heads // size.ranks, GROUP)


def _ulysses(x: Tensor, w: Weights, layer: str, size: Size) -> Tensor:
    return ulysses_block(x, w, layer, size.heads, size.ranks, GROUP)


def _ring(x: Tensor, w: Weights, layer: str, size: Size) -> Tensor:
    return ring_block(x, w, layer, size.heads, size.ranks, GROUP)


def _expert(x: Tensor, w: Weights, layer: str, size: Size) -> Tensor:
    return expert_block(x, w, layer, size.heads, size.ranks, GROUP)


def _pair(
    name: str,
    block: Block,
    shapes: Callable[[Size], Shapes],
    splits: bool,
    dealt: tuple[str, ...],
    whole: tuple[str, ...],
) -> list[BuiltIn]:
    """For training, and for inference on long sequences."""
    about, served = BUILT_IN_PROGRAMS[name], BUILT_IN_PROGRAMS[f"{name}{INFERENCE}"]
    training = BuiltIn(name, about, block, shapes, _SIZES.get(name, _TRAINED), True, splits, dealt, whole)
    return [training, BuiltIn(f"{name}{INFERENCE}", served, block, shapes, _LONG, False, splits, dealt)]


BUILT_IN = {
    one.name: one
    for one in (
        *_pair("tp-transformer", _tensor, _split_weights, False, ("heads", "hidden"), ()),
        *_pair("tp-sp-transformer", _gathered, _split_weights, True, ("heads", "hidden", "tokens"), _NORMS),
        *_pair("ulysses-transformer", _ulysses, _whole_weights, True, ("heads", "tokens"), _WHOLE),
        *_pair("ring-transformer", _ring, _whole_weights, True, ("tokens",), _WHOLE),
        *_pair(
            "moe-transformer",
            _expert,
            _expert_weights,
            False,
            ("tokens",),
            (*_NORMS, "q", "k", "v", "o", "router"),
        ),
    )
}
