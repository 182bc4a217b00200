"""What ranks report per step, read from lines that may hold anything."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telemetry.core.errors import MalformedLine

TAGS = ("train", "warmup", "checkpoint", "evaluation")
LARGEST_WHOLE = 2**53
# What is outside is no duration and no amount of work, and would leave the range of a double when multiplied.
SECONDS_RANGE, WORK_RANGE = (1e-12, 1e12), (1e-6, 1e24)


@dataclass(frozen=True)
class StepSample:
    """One rank's step. Seconds; `wait_s` is the part of `compute_s` spent waiting inside its group.

    A value that was reported but cannot be used makes `compute_s` NaN: the sample is dropped and counted.
    """

    step: int
    rank: int
    replica: int
    stage: int
    compute_s: float
    node: str | None = None
    wait_s: float = math.nan
    wall_s: float = math.nan
    tokens: float = math.nan
    sum_sq: float = math.nan
    tag: str = "train"


@dataclass(frozen=True)
class StepBatch:
    """The samples of one step in columns, one row for each rank; NaN where a value was not given."""

    step: int
    rank: NDArray[np.int64]
    replica: NDArray[np.int64]
    stage: NDArray[np.int64]
    compute_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    wall_s: NDArray[np.float64]
    tokens: NDArray[np.float64]
    sum_sq: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rank)

    def select(self, rows: NDArray[np.bool_]) -> "StepBatch":
        """Return the rows of a mask; the batch itself where that is all of them."""
        if rows.all():
            return self
        return StepBatch(self.step, *(getattr(self, name)[rows] for name in COLUMNS))


WHOLE, REAL = ("rank", "replica", "stage"), ("compute_s", "wait_s", "wall_s", "tokens", "sum_sq")
COLUMNS = WHOLE + REAL


def batch_of(step: int, samples: Sequence[StepSample]) -> StepBatch:
    """Return a step's training samples in columns; tagged ones (checkpoint and so on) are left out."""
    kept = [sample for sample in samples if sample.tag == "train"]
    columns: dict[str, Any] = {name: np.array([getattr(each, name) for each in kept]) for name in COLUMNS}
    for name in COLUMNS:
        columns[name] = columns[name].astype(np.int64 if name in WHOLE else np.float64)
    return StepBatch(step, **columns)


def sample_from(row: Mapping[str, Any]) -> StepSample:
    """Return a line as a sample.

    Raises MalformedLine for a line whose identity (step, rank, replica, stage, tag) or a type is wrong.
    """
    node = row.get("node")
    if node is not None and not isinstance(node, str):
        raise MalformedLine("node must be a text")
    tag = row.get("tag") or "train"
    if not isinstance(tag, str) or tag not in TAGS:
        raise MalformedLine(f"tag must be one of {', '.join(TAGS)}, not {shown(tag)}")
    values = {name: number(row, name) for name in REAL}
    broken = [name for name in REAL if row.get(name) is not None and not _usable(name, values[name])]
    if broken:
        values["compute_s"] = math.nan
    step, rank, replica, stage = (whole(row, name) for name in ("step", "rank", "replica", "stage"))
    return StepSample(step, rank, replica, stage, node=node, tag=tag, **values)


def _usable(name: str, value: float) -> bool:
    least, most = WORK_RANGE if name in ("tokens", "sum_sq") else SECONDS_RANGE
    return least <= value <= most or (name == "wait_s" and value == 0)


def whole(row: Mapping[str, Any], name: str) -> int:
    """Return a field that must be a whole number of at least 0."""
    if name not in row:
        raise MalformedLine(f"{name} is missing")
    value = row[name]
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST_WHOLE
    if not fits or value != int(value):
        raise MalformedLine(f"{name} must be a whole number of at least 0, not {shown(value)}")
    return int(value)


def number(row: Mapping[str, Any], name: str) -> float:
    """Return a field that must be a number where it is given; NaN where it is not."""
    value = row.get(name)
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedLine(f"{name} must be a number, not {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def shown(value: Any) -> str:
    """Return a foreign value, short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
