"""Moves state between ranks, box by box, from any layout to any other, and proves that no bit changed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from jobs.core.layout.transfer import STATE_TENSORS, Box, Move, TransferPlan, cover
from workers.trainer.parallel.agreement import Vote
from workers.trainer.parallel.errors import Refused
from workers.trainer.parallel.groups import Group
from workers.trainer.parallel.placement import Placement, atoms
from workers.trainer.parallel.spec import RunSpec
from workers.trainer.parallel.state import ShardedState

CHUNK_FLOATS = 1 << 20  # sent at a time


@dataclass
class Passage:
    """What moves in one change of layout, the same on every rank."""

    plan: TransferPlan
    before: dict[int, list[Box]]
    after: dict[int, list[Box]]
    names: tuple[str, ...]

    @property
    def cells(self) -> list[Box]:
        """The finest cut of all boxes before and after."""
        found: dict[int, list[Box]] = {}
        for boxes in (*self.before.values(), *self.after.values()):
            for box in boxes:
                found.setdefault(box.layer, []).append(box)
        return [cell for layer in sorted(found) for cell in atoms(found[layer])]

    def rank_of(self, name: str) -> int:
        """The plan rank of a device."""
        return self.names.index(name)

    def brings_wholes(self, move: Move) -> bool:
        """Whether a move also carries the layer's whole tensors: the first into a rank without the layer."""
        return self._with_wholes.get((move.target, move.box.layer)) == move

    @cached_property
    def _with_wholes(self) -> dict[tuple[str, int], Move]:
        held = {(self.names[rank], box.layer) for rank, boxes in self.before.items() for box in boxes}
        first: dict[tuple[str, int], Move] = {}
        for move in self.plan.moves:
            if (move.target, move.box.layer) not in held:
                first.setdefault((move.target, move.box.layer), move)
        return first


def passage(
    spec: RunSpec, votes: dict[int, Vote], target: Placement, placed: Callable[[dict[str, Any]], Placement]
) -> Passage:
    """Plan the move to `target` from what the voters at the newest step hold, each by its own layout."""
    last = max(vote.step for vote in votes.values())
    before = {
        rank: placed(vote.layout).boxes(rank)
        for rank, vote in votes.items()
        if vote.layout is not None and vote.step == last
    }
    after = {rank: target.boxes(rank) for rank in target.working}
    names = spec.devices
    plan = cover(
        {names[rank]: boxes for rank, boxes in before.items()},
        {names[rank]: boxes for rank, boxes in after.items()},
        [names[rank] for rank in votes],
        spec.nodes,
    )
    return Passage(plan, before, after, names)


def move_state(way: Passage, me: int, old: ShardedState | None, new: ShardedState, group: Group) -> int:
    """Fill `new` from `old` and from other ranks; returns the bytes this rank sent.

    All ranks walk the moves in one order and finish one before the next, so they cannot wait in a ring.
    """
    if old is not None and old is not new:
        _keep(way, me, old, new)
    sent = 0
    for number, move in enumerate(way.plan.moves):
        source, target = way.rank_of(move.source), way.rank_of(move.target)
        if me == source and old is not None:
            sent += _send(number, move, way, old, group, target)
        elif me == target:
            _receive(number, move, way, new, group, source)
    return sent


def check_same(sums: dict[int, dict[str, dict[str, str]]]) -> None:
    """Refuse a move unless all who held a box before and all who hold it now name the same checksum."""
    known: dict[str, tuple[str, int]] = {}
    for rank in sorted(sums):
        for when in ("before", "after"):
            for cell, checksum in sums[rank][when].items():
                other, witness = known.setdefault(cell, (checksum, rank))
                if other != checksum:
                    raise Refused(f"{cell}: ranks {witness} and {rank} hold different bits")


def _keep(way: Passage, me: int, old: ShardedState, new: ShardedState) -> None:
    for kind in STATE_TENSORS:
        for name, box in way.plan.kept:
            if way.rank_of(name) == me:
                _copy(old.pieces(kind, box), new.pieces(kind, box))
        for layer in old.boxes.keys() & new.boxes.keys():
            _copy(old.wholes(kind, layer), new.wholes(kind, layer))


def _copy(sources: list[Tensor], targets: list[Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)


def _parts(move: Move, state: ShardedState, wholes: bool) -> list[Tensor]:
    rows: list[Tensor] = []
    for kind in STATE_TENSORS:
        rows += state.pieces(kind, move.box)
        if wholes:
            rows += state.wholes(kind, move.box.layer)
    return rows


def _send(number: int, move: Move, way: Passage, old: ShardedState, group: Group, target: int) -> int:
    flat = torch.cat([part.reshape(-1) for part in _parts(move, old, way.brings_wholes(move))])
    for piece in flat.split(CHUNK_FLOATS):
        group.send(piece, target, number)
        group.settle()
    return flat.numel() * flat.element_size()


def _receive(number: int, move: Move, way: Passage, new: ShardedState, group: Group, source: int) -> None:
    parts = _parts(move, new, way.brings_wholes(move))
    sizes = [part.numel() for part in parts]
    flat = torch.cat([group.receive((n,), source, number).wait() for n in _chunks(sum(sizes))])
    for part, values in zip(parts, flat.split(sizes), strict=True):
        part.copy_(values.view(part.shape))


def _chunks(count: int) -> list[int]:
    whole, left = divmod(count, CHUNK_FLOATS)
    return [CHUNK_FLOATS] * whole + [left] * (left > 0)
