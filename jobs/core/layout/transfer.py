"""Which state moves from where to where when a job changes its layout.

The state of a layer (weights and both Adam moments alike) is cut along its tensor-parallel dimension: device
j of a group of k holds the part [j/k, (j+1)/k). A *box* is a layer and such an interval. The plan covers
every box the new layout needs exactly once: with what the device holds already, else from a living holder.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from jobs.core.layout.instance import Layout

STATE_TENSORS = ("weight", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True, order=True)
class Box:
    """Part [start, end) of the tensor-parallel dimension of one layer; 0 to 1 is the whole layer."""

    layer: int
    start: Fraction
    end: Fraction

    @property
    def share(self) -> Fraction:
        """Part of the layer's state."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """A box that `source` sends to `target`, for each of STATE_TENSORS."""

    box: Box
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """A full cover of the new layout's needs.

    `moves` are sorted, so all ranks can post them in one order without deadlock. `kept` are boxes that stay
    where they are. `missing` are needed boxes no living device holds: unless it is empty every rank must
    load the last checkpoint instead, for parts of two different steps may never mix.
    """

    moves: tuple[Move, ...]
    kept: tuple[tuple[str, Box], ...]
    missing: tuple[tuple[str, Box], ...]

    @property
    def needs_checkpoint(self) -> bool:
        """Whether some state survives on no living device."""
        return bool(self.missing)

    def moved(self, layer_sizes: Sequence[float]) -> float:
        """What is sent, in the unit of `layer_sizes` (state of each whole layer)."""
        return sum(float(move.box.share) * layer_sizes[move.box.layer] for move in self.moves)

    def moved_layers(self) -> tuple[int, ...]:
        """Layers of which anything is sent."""
        return tuple(sorted({move.box.layer for move in self.moves}))


def holdings(layout: Layout) -> dict[str, list[Box]]:
    """The boxes of every working device, by layer."""
    held: dict[str, list[Box]] = {}
    for replica in layout.replicas:
        first = 0
        for stage in replica.stages:
            size = len(stage.devices)
            for shard, device in enumerate(stage.devices):
                start, end = Fraction(shard, size), Fraction(shard + 1, size)
                held[device] = [Box(layer, start, end) for layer in range(first, first + stage.layers)]
            first += stage.layers
    return held


def transfer_plan(
    old: Layout, new: Layout, living: Collection[str], node_of: Mapping[str, str] | None = None
) -> TransferPlan:
    """Plan the state movement from one layout to another.

    Donors are chosen by same node first, then by the least sent so far, then by name: deterministic, and no
    single replica becomes the source of everything.
    """
    return cover(holdings(old), holdings(new), living, node_of)


def cover(
    before: Mapping[str, Sequence[Box]],
    after: Mapping[str, Sequence[Box]],
    living: Collection[str],
    node_of: Mapping[str, str] | None = None,
) -> TransferPlan:
    """As `transfer_plan`, from the boxes devices hold to those they need; at most one box per layer each."""
    alive = set(living)
    donors: dict[int, list[tuple[str, Box]]] = {}
    for device, boxes in before.items():
        if device in alive:
            for box in boxes:
                donors.setdefault(box.layer, []).append((device, box))
    nodes = node_of or {}
    sent: dict[str, Fraction] = {}
    moves: list[Move] = []
    kept: list[tuple[str, Box]] = []
    missing: list[tuple[str, Box]] = []
    for target, needs in sorted(after.items()):
        own = {box.layer: box for box in before.get(target, ())} if target in alive else {}
        for need in needs:
            stays, gaps = _subtract(need, own.get(need.layer))
            kept += [(target, box) for box in stays]
            for gap in gaps:
                found, lost = _cover(gap, target, donors.get(need.layer, ()), nodes, sent)
                moves += found
                missing += [(target, box) for box in lost]
    return TransferPlan(tuple(sorted(moves)), tuple(sorted(kept)), tuple(sorted(missing)))


def _subtract(need: Box, own: Box | None) -> tuple[list[Box], list[Box]]:
    """Parts of a need that are held already, and the parts that are not."""
    if own is None or own.end <= need.start or own.start >= need.end:
        return [], [need]
    start, end = max(need.start, own.start), min(need.end, own.end)
    gaps = [Box(need.layer, need.start, start), Box(need.layer, end, need.end)]
    return [Box(need.layer, start, end)], [gap for gap in gaps if gap.share > 0]


def _cover(
    gap: Box,
    target: str,
    donors: Sequence[tuple[str, Box]],
    nodes: Mapping[str, str],
    sent: dict[str, Fraction],
) -> tuple[list[Move], list[Box]]:
    """Cover a gap from left to right; returns the moves and what nobody can give."""
    moves, lost, start = [], [], gap.start
    while start < gap.end:
        able = [(device, box) for device, box in donors if box.start <= start < box.end]
        if able:
            here = nodes.get(target)
            source, box = min(
                able,
                key=lambda row: (
                    here is None or nodes.get(row[0]) != here,
                    sent.get(row[0], Fraction(0)),
                    row[0],
                ),
            )
            piece = Box(gap.layer, start, min(box.end, gap.end))
            sent[source] = sent.get(source, Fraction(0)) + piece.share
            moves.append(Move(piece, source, target))
        else:
            later = [box.start for _, box in donors if start < box.start < gap.end]
            piece = Box(gap.layer, start, min(later, default=gap.end))
            lost.append(piece)
        start = piece.end
    return moves, lost
