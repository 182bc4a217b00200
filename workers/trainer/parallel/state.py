"""What a rank holds: its boxes of the weights, the Adam moments and the gradients, in four flat buffers."""

import hashlib
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from jobs.core.layout.transfer import STATE_TENSORS, Box
from workers.trainer.parallel.placement import inside
from workers.trainer.parallel.spec import RunSpec
from workers.trainer.parallel.tensors import LogicalTensor, initial, model_tensors, region, shape_in

GRADIENT = "gradient"


@dataclass(frozen=True)
class Progress:
    """The state that is no tensor, equal on all ranks: committed steps, the data cursor, the random state.

    The learning rate is a function of the step and the run, so the step is the state of its schedule.
    """

    step: int = 0
    cursor: int = 0
    random: str = ""

    @classmethod
    def first(cls, seed: int) -> "Progress":
        """Before the first step."""
        return cls(0, 0, torch.Generator().manual_seed(seed).get_state().numpy().tobytes().hex())

    def draw(self) -> tuple[int, str]:
        """Return the seed of the next iteration's random numbers and the random state after it."""
        generator = torch.Generator()
        generator.set_state(torch.frombuffer(bytearray.fromhex(self.random), dtype=torch.uint8))
        seed = int(torch.randint(2**62, (1,), generator=generator))
        return seed, generator.get_state().numpy().tobytes().hex()

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


class ShardedState:
    """The tensors of a rank's boxes; every view shares memory with the flat buffer of its kind."""

    def __init__(self, spec: RunSpec, symbols: int, boxes: Sequence[Box], device: torch.device) -> None:
        self.boxes = {box.layer: box for box in boxes}
        self.tensors: dict[str, LogicalTensor] = {}
        self.layers = model_tensors(spec, symbols)
        shapes: dict[str, tuple[int, ...]] = {}
        for box in boxes:
            for tensor in self.layers[box.layer]:
                self.tensors[tensor.name] = tensor
                shapes[tensor.name] = shape_in(tensor, box)
        # matrices first: weight decay is then one operation on the front of the buffer
        names = sorted(self.tensors, key=lambda name: not self.tensors[name].decays)
        self.size = sum(prod(shape) for shape in shapes.values())
        self.decaying = sum(prod(shapes[name]) for name in names if self.tensors[name].decays)
        self._shapes = {name: shapes[name] for name in names}
        self._hold({kind: torch.zeros(self.size, device=device) for kind in (*STATE_TENSORS, GRADIENT)})

    def _hold(self, flat: dict[str, Tensor]) -> None:
        self.flat = flat
        self.views: dict[str, dict[str, Tensor]] = {kind: {} for kind in flat}
        at = 0
        for name, shape in self._shapes.items():
            for kind, buffer in flat.items():
                self.views[kind][name] = buffer[at : at + prod(shape)].view(shape)
            at += prod(shape)

    def detached(self, flat: dict[str, Tensor]) -> "ShardedState":
        """The same boxes over other buffers, such as a copy of these."""
        other = copy(self)
        other._hold(flat)
        return other

    def fill(self, seed: int) -> None:
        """Give every weight its first value; moments start at zero."""
        for name, tensor in self.tensors.items():
            self.views["weight"][name].copy_(initial(tensor, self.boxes[tensor.layer], seed))

    def part(self, kind: str, tensor: LogicalTensor, cell: Box) -> Tensor:
        """The view of a tensor's part inside a cell, which must lie inside the rank's box of the layer."""
        view = self.views[kind][tensor.name]
        if tensor.split is None:
            return view
        box = self.boxes[tensor.layer]
        own, wanted = region(tensor, box.start, box.end), region(tensor, cell.start, cell.end)
        return view.narrow(tensor.split, wanted.start - own.start, wanted.end - wanted.start)

    def pieces(self, kind: str, cell: Box) -> list[Tensor]:
        """The parts of all split tensors of a layer inside a cell, in the model's order."""
        return [
            self.part(kind, tensor, cell) for tensor in self.layers[cell.layer] if tensor.split is not None
        ]

    def wholes(self, kind: str, layer: int) -> list[Tensor]:
        """The tensors of a layer that every shard holds whole, in the model's order."""
        return [self.views[kind][tensor.name] for tensor in self.layers[layer] if tensor.split is None]

    def checksums(self, cells: Iterable[Box]) -> dict[str, str]:
        """A checksum of the bits of every cell that lies inside this state, and of each layer's wholes."""
        found: dict[str, str] = {}
        for cell in cells:
            box = self.boxes.get(cell.layer)
            if box is None or not inside(cell, box):
                continue
            for kind in STATE_TENSORS:
                found[f"{kind} {cell.layer} {cell.start}-{cell.end}"] = _checksum(self.pieces(kind, cell))
                whole = f"{kind} {cell.layer} whole"
                if whole not in found:
                    found[whole] = _checksum(self.wholes(kind, cell.layer))
        return found


def _checksum(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
