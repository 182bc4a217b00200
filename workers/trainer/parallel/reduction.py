"""Gradients across replicas: every box is summed over its holders, however differently they are cut.

Each replica contributes a box exactly once. What all shards of a group hold whole (norms, positions, biases
after a sum) is contributed by the first shard; the others add zero and receive the same bits.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from jobs.core.layout.transfer import Box
from workers.trainer.parallel.groups import Groups
from workers.trainer.parallel.placement import Placement, atoms, inside
from workers.trainer.parallel.state import GRADIENT, ShardedState


@dataclass
class Bucket:
    """What one set of holders sums together: cells of split tensors, and layers' whole tensors."""

    holders: tuple[int, ...]
    cells: list[Box] = field(default_factory=list)
    whole_layers: list[int] = field(default_factory=list)


def buckets(placement: Placement) -> list[Bucket]:
    """Everything the replicas hold, by the set of ranks that hold it, in one order on all ranks."""
    found: dict[tuple[int, ...], Bucket] = {}
    for layer, rows in sorted(placement.holders().items()):
        everyone = tuple(sorted(rank for rank, _ in rows))
        found.setdefault(everyone, Bucket(everyone)).whole_layers.append(layer)
        for cell in atoms(box for _, box in rows):
            holders = tuple(sorted(rank for rank, box in rows if inside(cell, box)))
            found.setdefault(holders, Bucket(holders)).cells.append(cell)
    return [found[holders] for holders in sorted(found)]


class GradientReduction:
    """Sums this rank's gradients with those of the other holders."""

    def __init__(self, placement: Placement, me: int, state: ShardedState, groups: Groups) -> None:
        self._state, self._groups, self._me = state, groups, me
        self._buckets = [bucket for bucket in buckets(placement) if me in bucket.holders]
        self._speaks = placement.seats[me].shard == 0

    def run(self) -> float:
        """Sum in place; return this rank's part of the squared norm, each box counted by one rank only."""
        squared = 0.0
        for bucket in self._buckets:
            split = [part for cell in bucket.cells for part in self._state.pieces(GRADIENT, cell)]
            whole = [row for layer in bucket.whole_layers for row in self._state.wholes(GRADIENT, layer)]
            if not self._speaks:
                for row in whole:
                    row.zero_()
            self._sum(split + whole, bucket.holders)
            if bucket.holders[0] == self._me:
                squared += sum(float(row.double().square().sum()) for row in split + whole)
        return squared

    def _sum(self, tensors: list[Tensor], holders: tuple[int, ...]) -> None:
        if len(holders) == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self._groups.of(holders).sum(flat)
        for tensor, total in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(total.view(tensor.shape))
