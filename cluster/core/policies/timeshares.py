"""Gavel in the live queue: the linear programmes of `gavel`, and devices for the pairs furthest behind.

What a round is in the paper is the minimum run time here. A job that runs on another kind than it should be
on now goes behind, so that it moves as soon as somebody needs its place.
"""

from collections.abc import Callable

import numpy as np

from cluster.core.policies.gavel import (
    Shares,
    assign_round,
    finish_time_shares,
    makespan_shares,
    max_min_shares,
)
from cluster.core.policies.interface import Blocking, Policy
from cluster.core.workload import FloatColumn, FloatMatrix, IntColumn, IntMatrix, JobTable

# Programmes over more jobs than this take longer than a tick; those behind wait their turn by arrival.
MOST_JOBS = 400
# Believed run times within this factor are one class of the programme.
GRAIN = 1.1


class TimeShares(Policy):
    """Who should run on which kind now, by time shares that know how fast each job is on each kind."""

    blocking = Blocking.SKIP
    preempts = True
    reads_kinds = True

    def __init__(self, name: str, title: str, shares: Callable[[JobTable, IntColumn, float], Shares]) -> None:
        self.name, self.title = name, title
        self._shares = shares
        self._preferred: IntMatrix = np.zeros((0, 0), dtype=np.int64)

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        planned = rows[(jobs.unit[rows] == 0) & (jobs.devices[rows] > 0)]
        running = jobs.running[planned]
        planned = np.sort(np.concatenate([planned[running], planned[~running]])[:MOST_JOBS])
        speed = jobs.speed[rows]
        self._preferred = _ranked(speed)
        if not len(planned) or not jobs.workers.sum():
            return rows
        kind = self._assign(jobs, planned, now)
        at = np.searchsorted(rows, planned)
        self._preferred[at] = _ranked(speed[at], first=kind)
        stage = np.full(len(rows), 2)
        moves = (jobs.on_kind[planned] >= 0) & (jobs.on_kind[planned] != kind)
        stage[at] = np.where(kind < 0, 2, np.where(moves, 1, 0))
        return rows[np.lexsort((rows, stage))]

    def kinds(self, jobs: JobTable, rows: IntColumn) -> IntMatrix:
        return self._preferred

    def _assign(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        """Return the kind each row should be on now (R,), -1 for none."""
        speed, devices = jobs.speed[rows], jobs.devices[rows]
        remaining = GRAIN ** np.round(np.log(np.maximum(jobs.remaining_s[rows], 1.0)) / np.log(GRAIN))
        shares = self._shares(jobs, rows, now)(speed, devices, jobs.workers, remaining)
        return assign_round(shares, jobs.received_s[rows], speed, devices, jobs.workers)


def _ranked(speed: FloatMatrix, first: IntColumn | None = None) -> IntMatrix:
    """Return kinds by speed, the given one first, -1 where a job may not run (R, T)."""
    order = np.argsort(-speed, axis=1, kind="stable")
    if first is not None:
        for row in np.flatnonzero(first >= 0).tolist():
            order[row] = [first[row], *(kind for kind in order[row].tolist() if kind != first[row])]
    allowed = np.take_along_axis(speed, order, axis=1) > 0
    return np.where(allowed, order, -1).astype(np.int64)


def _finish_time(jobs: JobTable, rows: IntColumn, now: float) -> Shares:
    """Return the programme of finish-time fairness for these rows."""
    equal = jobs.workers / jobs.workers.sum()
    part = np.maximum(len(rows) * jobs.devices[rows] / jobs.workers.sum(), 1.0)
    alone = jobs.duration_s[rows] * part / np.maximum(jobs.speed[rows] @ equal, 1e-9)
    alone = _grained(alone)
    elapsed = _grained(now - jobs.submit_s[rows])

    def shares(
        speed: FloatMatrix, devices: IntColumn, workers: IntColumn, remaining: FloatColumn
    ) -> FloatMatrix:
        return finish_time_shares(speed, devices, workers, remaining, elapsed, alone)

    return shares


def _grained(seconds: FloatColumn) -> FloatColumn:
    grains: FloatColumn = GRAIN ** np.round(np.log(np.maximum(seconds, 1.0)) / np.log(GRAIN))
    return grains


def gavel_fairness() -> TimeShares:
    """Return Gavel's max-min fairness."""
    title = "Max-min fair time shares over kinds of devices (Gavel), preemptive"
    return TimeShares("gavel", title, lambda jobs, rows, now: max_min_shares)


def gavel_makespan() -> TimeShares:
    """Return Gavel's least makespan."""
    title = "Time shares for the earliest end of all (Gavel), preemptive"
    return TimeShares("gavel-makespan", title, lambda jobs, rows, now: makespan_shares)


def gavel_finish_time() -> TimeShares:
    """Return Gavel's finish-time fairness."""
    title = "Time shares for the least worst finish-time fairness (Gavel), preemptive"
    return TimeShares("gavel-finish-time", title, _finish_time)
