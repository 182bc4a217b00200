"""What a simulation tells: times of every job, and the figures over them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.core.workload import FloatColumn, IntColumn, JobTable


@dataclass(slots=True)
class SimulationResult:
    """Times of J jobs in the order of the table.

    Attributes:
        start_s, end_s: first start and end; NaN where that never came.
        refused: rows that were never let in, ascending.
        earliest_deadline_s: for rows refused because of their deadline, the earliest one that would do.
        preemptions: stops of running jobs.
        devices: devices of the cluster.
        wall_s: how long the simulation took.
    """

    jobs: JobTable
    policy: str
    start_s: FloatColumn
    end_s: FloatColumn
    refused: IntColumn
    preemptions: int
    devices: int
    wall_s: float = 0.0
    earliest_deadline_s: dict[int, float] | None = None

    def completed(self) -> IntColumn:
        """Return the rows that ended, ascending."""
        return np.flatnonzero(np.isfinite(self.end_s))

    def completion_s(self) -> FloatColumn:
        """Return end minus submission of the completed jobs."""
        rows = self.completed()
        return self.end_s[rows] - self.jobs.submit_s[rows]

    def queue_s(self) -> FloatColumn:
        """Return completion time minus run time of the completed jobs."""
        return self.completion_s() - self.jobs.duration_s[self.completed()]

    def figures(self) -> dict[str, Any]:
        """Return the figures of `forebay schedule`, None where there is nothing to take them over."""
        rows = self.completed()
        completion = self.completion_s()
        work = float(np.sum(self.jobs.devices[rows] * self.jobs.duration_s[rows]))
        makespan = float(self.end_s[rows].max() - self.jobs.submit_s[rows].min()) if len(rows) else None
        return {
            "jobs": len(self.jobs),
            "completed": len(rows),
            "refused": len(self.refused),
            "avg_jct_s": _mean(completion),
            "p99_jct_s": nearest_rank(completion, 0.99),
            "avg_queue_s": _mean(self.queue_s()),
            "makespan_s": makespan,
            "gpu_utilisation": work / (self.devices * makespan) if makespan else 0.0,
            "preemptions": self.preemptions,
            "deadline_miss_rate": self.deadline_miss_rate(),
            "wall_s": self.wall_s,
        }

    def deadline_miss_rate(self) -> float | None:
        """Return the share of admitted jobs with a deadline that ended late, None without any."""
        promised = np.isfinite(self.jobs.deadline_s)
        promised[self.refused] = False
        if not promised.any():
            return None
        late = ~(self.end_s[promised] <= self.jobs.deadline_s[promised] + 1e-6)
        return float(late.mean())

    def on_time(self) -> int:
        """Return how many jobs with a deadline ended by it."""
        rows = self.completed()
        due = self.jobs.deadline_s[rows]
        return int(np.sum(np.isfinite(due) & (self.end_s[rows] <= due + 1e-6)))


def nearest_rank(values: FloatColumn, share: float) -> float | None:
    """Return the smallest value that at least `share` of the values do not exceed, None without values."""
    if not len(values):
        return None
    rank = max(1, math.ceil(share * len(values) - 1e-9))
    return float(np.partition(values, rank - 1)[rank - 1])


def _mean(values: FloatColumn) -> float | None:
    return float(values.mean()) if len(values) else None
