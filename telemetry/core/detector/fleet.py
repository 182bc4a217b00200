"""Which ranks exist, where they sit, and which series their samples belong to."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from telemetry.core.detector.samples import StepBatch

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Cell:
    """A series that can be judged: a rank, or (rank None) a group whose ranks do not report their waits."""

    replica: int
    stage: int
    rank: int | None


@dataclass(frozen=True)
class Assignment:
    """For each row of a step, its cell and its group (the ranks that share replica and stage)."""

    cell: Indices
    group: Indices


@dataclass
class Fleet:
    """Places of ranks, grown as they appear; indices are never reused."""

    place: dict[int, tuple[int, int]] = field(default_factory=dict)
    groups: dict[tuple[int, int], int] = field(default_factory=dict)
    members: list[set[int]] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    stage_of_cell: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    stage_of_group: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _index: dict[Cell, int] = field(default_factory=dict)
    _last: tuple[StepBatch, NDArray[np.bool_], Assignment] | None = None

    def moved(self, rows: StepBatch) -> bool:
        """Whether a known rank sits somewhere else now: the job runs in another layout."""
        if self._repeats(rows):
            return False
        places = zip(rows.rank.tolist(), rows.replica.tolist(), rows.stage.tolist(), strict=True)
        return any(
            self.place.get(rank, (replica, stage)) != (replica, stage) for rank, replica, stage in places
        )

    def assign(self, rows: StepBatch) -> Assignment:
        """Return where each row belongs; new ranks, groups and cells are added."""
        waits = np.isfinite(rows.wait_s)
        if self._last is not None and self._repeats(rows) and np.array_equal(waits, self._last[1]):
            return self._last[2]
        places = list(zip(rows.rank.tolist(), rows.replica.tolist(), rows.stage.tolist(), strict=True))
        group = np.array([self._group(*place) for place in places], dtype=np.int64)
        cell = np.array(
            [
                self._cell(replica, stage, rank if wait or len(self.members[number]) == 1 else None)
                for (rank, replica, stage), number, wait in zip(
                    places, group.tolist(), waits.tolist(), strict=True
                )
            ],
            dtype=np.int64,
        )
        self.stage_of_cell = np.array([cell.stage for cell in self.cells], dtype=np.int64)
        self.stage_of_group = np.array([stage for _, stage in self.groups], dtype=np.int64)
        assignment = Assignment(cell, group)
        self._last = (rows, waits, assignment)
        return assignment

    def _repeats(self, rows: StepBatch) -> bool:
        if self._last is None:
            return False
        last = self._last[0]
        return all(
            np.array_equal(getattr(rows, name), getattr(last, name)) for name in ("rank", "replica", "stage")
        )

    def _group(self, rank: int, replica: int, stage: int) -> int:
        self.place.setdefault(rank, (replica, stage))
        number = self.groups.setdefault((replica, stage), len(self.groups))
        if number == len(self.members):
            self.members.append(set())
        self.members[number].add(rank)
        return number

    def _cell(self, replica: int, stage: int, rank: int | None) -> int:
        cell = Cell(replica, stage, rank)
        number = self._index.setdefault(cell, len(self.cells))
        if number == len(self.cells):
            self.cells.append(cell)
        return number


def mean_by(index: Indices, values: Array, size: int) -> Array:
    """Return the mean of the values of each index, NaN where an index has none."""
    count = np.bincount(index, minlength=size)
    total = np.bincount(index, weights=values, minlength=size)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan), dtype=np.float64)


def others_median(values: Array) -> Array:
    """Return for each value the median of all the others; NaN for a lone one."""
    count = len(values)
    if count < 2:
        return np.full(count, np.nan)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    position = np.empty(count, dtype=np.int64)
    position[order] = np.arange(count)
    low, high = (count - 2) // 2, (count - 1) // 2
    return np.asarray(
        (ordered[low + (low >= position)] + ordered[high + (high >= position)]) / 2, dtype=np.float64
    )
