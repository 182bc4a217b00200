"""Who does what in a layout: seats of ranks, the layers of each model chunk, who holds which box."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from jobs.core.layout.instance import Layout
from jobs.core.layout.transfer import Box
from jobs.core.pipeline import Schedule
from workers.trainer.parallel.spec import RunSpec


@dataclass(frozen=True)
class Seat:
    """The place of a rank: shard `shard` of `peers` (plan ranks of its tensor-parallel group, in order)."""

    replica: int
    stage: int
    shard: int
    peers: tuple[int, ...]

    @property
    def degree(self) -> int:
        """Size of the tensor-parallel group."""
        return len(self.peers)

    @property
    def span(self) -> tuple[Fraction, Fraction]:
        """The part of the tensor-parallel dimension the rank holds."""
        return Fraction(self.shard, self.degree), Fraction(self.shard + 1, self.degree)


class Placement:
    """A layout with the devices turned into plan ranks and the schedule of each replica laid over it."""

    def __init__(self, spec: RunSpec, layout: Layout) -> None:
        self.spec, self.layout = spec, layout
        number = {name: rank for rank, name in enumerate(spec.devices)}
        self.groups: list[list[tuple[int, ...]]] = [
            [tuple(number[name] for name in stage.devices) for stage in replica.stages]
            for replica in layout.replicas
        ]
        self.schedules: list[Schedule] = [
            spec.schedule_of(len(replica.stages), replica.microbatches) for replica in layout.replicas
        ]

    @cached_property
    def seats(self) -> dict[int, Seat]:
        """The seat of every rank that works."""
        return {
            rank: Seat(i, j, shard, group)
            for i, groups in enumerate(self.groups)
            for j, group in enumerate(groups)
            for shard, rank in enumerate(group)
        }

    @property
    def working(self) -> tuple[int, ...]:
        """Plan ranks that work, in ascending order."""
        return tuple(sorted(self.seats))

    def microbatches(self, replica: int) -> range:
        """Which micro-batches of an iteration a replica runs."""
        first = sum(row.microbatches for row in self.layout.replicas[:replica])
        return range(first, first + self.layout.replicas[replica].microbatches)

    def chunk_layers(self, replica: int) -> list[range]:
        """The layers of each virtual stage, in their order; a rank's layers are shared among its chunks."""
        schedule = self.schedules[replica]
        sizes = []
        for virtual in range(schedule.virtual_stages):
            rank, chunk = schedule.home(virtual)
            whole, left = divmod(self.layout.replicas[replica].stages[rank].layers, schedule.model_chunks)
            sizes.append(whole + (chunk < left))
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]

    def layers_of(self, seat: Seat) -> list[int]:
        """All layers a seat holds a part of, in ascending order."""
        schedule, chunks = self.schedules[seat.replica], self.chunk_layers(seat.replica)
        return sorted(
            layer
            for chunk in range(schedule.model_chunks)
            for layer in chunks[schedule.virtual_stage(seat.stage, chunk)]
        )

    def boxes(self, rank: int) -> list[Box]:
        """The boxes of a rank, one per layer, in the order of the layers; none for an idle rank."""
        seat = self.seats.get(rank)
        if seat is None:
            return []
        return [Box(layer, *seat.span) for layer in self.layers_of(seat)]

    def holders(self) -> dict[int, list[tuple[int, Box]]]:
        """Per layer, every rank that holds a box of it."""
        return by_layer((rank, box) for rank in self.working for box in self.boxes(rank))


def by_layer(rows: Iterable[tuple[int, Box]]) -> dict[int, list[tuple[int, Box]]]:
    """Sort (rank, box) pairs by layer."""
    found: dict[int, list[tuple[int, Box]]] = {}
    for rank, box in rows:
        found.setdefault(box.layer, []).append((rank, box))
    return found


def atoms(boxes: Iterable[Box]) -> list[Box]:
    """The finest cut of one layer's boxes: every box is a union of these."""
    rows = list(boxes)
    points = sorted({point for box in rows for point in (box.start, box.end)})
    cells = [Box(rows[0].layer, a, b) for a, b in zip(points, points[1:], strict=False)]
    return [cell for cell in cells if any(inside(cell, box) for box in rows)]


def inside(cell: Box, box: Box) -> bool:
    """Whether one box of a layer lies inside another."""
    return box.layer == cell.layer and box.start <= cell.start and cell.end <= box.end
