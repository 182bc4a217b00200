"""Gittins index from the jobs that have finished (Tiresias: Gu et al., NSDI 2019, section 3.2)."""

from collections.abc import Sequence

import numpy as np

from cluster.core.policies.interface import Blocking, Policy
from cluster.core.workload import FloatColumn, IntColumn, JobTable

GRID_POINTS = 128


class GittinsIndex(Policy):
    """Highest chance of ending per expected service first.

    index(s) = max over D of P(service <= s + D | service > s) / E[min(service, s + D) - s | service > s],
    over the empirical distribution of total service. Without a history the jobs of the trace are it.
    """

    name = "gittins"
    title = "Gittins index of the empirical service distribution (Tiresias), preemptive"
    blocking = Blocking.SKIP
    preempts = True

    def __init__(self, history_device_s: Sequence[float] = ()) -> None:
        self._history: FloatColumn = np.sort(np.asarray(history_device_s, dtype=np.float64))
        self._learned_from: JobTable | None = None
        self._at: FloatColumn = np.zeros(0)
        self._index: FloatColumn = np.zeros(0)

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        if not len(rows):
            return rows
        if self._learned_from is not jobs:
            history = self._history if len(self._history) else np.sort(jobs.devices * jobs.duration_s)
            self._at, self._index = gittins_table(history)
            self._learned_from = jobs
        step = np.searchsorted(self._at, jobs.attained_device_s[rows], side="right") - 1
        return rows[np.argsort(-self._index[np.maximum(step, 0)], kind="stable")]


def gittins_table(service: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
    """Return attained service (A,) and the index there (A,), from sorted total services of finished jobs."""
    quantiles = np.unique(np.quantile(service, np.linspace(0.0, 1.0, GRID_POINTS)))
    attained = np.concatenate([[0.0], quantiles[:-1]]) if quantiles[0] > 0 else quantiles
    index = np.zeros(len(attained))
    for position, start in enumerate(attained):
        longer = service[service > start]
        if not len(longer):
            continue
        ends = quantiles[quantiles > start]
        finished = np.searchsorted(longer, ends, side="right")
        spent = np.concatenate([[0.0], np.cumsum(longer - start)])[finished] + (len(longer) - finished) * (
            ends - start
        )
        index[position] = np.max(finished / spent)
    return attained, index
