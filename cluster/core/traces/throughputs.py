"""Measured training speeds by job type and device kind, alone and two on one device."""

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cluster.core.errors import TraceError
from cluster.core.traces.columns import cell, column_index, open_rows, read_seconds

JobType = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Steps per second.

    Attributes:
        alone: (device kind, job type and gang size) to speed with devices of its own.
        together: (device kind, job a, job b) to the speeds of a and b on the same devices.
    """

    alone: dict[tuple[str, JobType], float]
    together: dict[tuple[str, JobType, JobType], tuple[float, float]]

    def kinds(self) -> list[str]:
        """Return the device kinds, unconsolidated variants left out."""
        return sorted({kind for kind, _ in self.alone if not kind.endswith("_unconsolidated")})

    def job_types(self) -> list[JobType]:
        """Return every (job type, gang size) that was measured."""
        return sorted({job for _, job in self.alone})

    def shared_speeds(self, kind: str, a: JobType, b: JobType) -> tuple[float, float]:
        """Return what a and b keep of their speed on one device; 0 where not measured."""
        first, second = self.together.get((kind, a, b), (0.0, 0.0))
        if first == 0.0 and (kind, b, a) in self.together:
            second, first = self.together[kind, b, a]
        alone_a, alone_b = self.alone.get((kind, a), 0.0), self.alone.get((kind, b), 0.0)
        if min(first, second, alone_a, alone_b) <= 0.0:
            return 0.0, 0.0
        return min(1.0, first / alone_a), min(1.0, second / alone_b)


def read_throughputs(isolated: Path, colocated: Path | None = None) -> Throughputs:
    """Read Gavel's two tables (Narayanan et al., OSDI 2020, public measurements).

    Raises:
        TraceError: a column is missing or a cell is wrong.
    """
    header, rows = open_rows(isolated)
    at = [column_index(header, name) for name in ("gpu_type", "job_type_and_scale", "steps_per_s")]
    alone = {
        (cell(row, at[0]), _job_type(cell(row, at[1]), number)): read_seconds(
            cell(row, at[2]), "steps_per_s", number
        )
        for number, row in enumerate(rows, start=1)
    }
    return Throughputs(alone, {} if colocated is None else _read_pairs(colocated))


def _read_pairs(path: Path) -> dict[tuple[str, JobType, JobType], tuple[float, float]]:
    header, rows = open_rows(path)
    at = [
        column_index(header, name)
        for name in ("gpu_type", "job_a", "job_b", "a_steps_per_s", "b_steps_per_s")
    ]
    pairs = {}
    for number, row in enumerate(rows, start=1):
        kind, a, b, speed_a, speed_b = (cell(row, index) for index in at)
        pairs[kind, _job_type(a, number), _job_type(b, number)] = (
            read_seconds(speed_a, "a_steps_per_s", number),
            read_seconds(speed_b, "b_steps_per_s", number),
        )
    return pairs


@lru_cache(maxsize=1024)
def _parse(text: str) -> JobType | None:
    try:
        name, size = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        return None
    return (name, size) if isinstance(name, str) and isinstance(size, int) else None


def _job_type(text: str, row: int) -> JobType:
    parsed = _parse(text)
    if parsed is None:
        raise TraceError("job type", f"{text!r} is not a pair of name and gang size", row)
    return parsed
