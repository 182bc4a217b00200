"""Shortest remaining time first, and its variant weighted by devices (SRSF, the oracle of Tiresias)."""

import numpy as np

from cluster.core.policies.interface import Blocking, Policy
from cluster.core.workload import IntColumn, JobTable


class ShortestRemainingTime(Policy):
    """By remaining run time; the running set is chosen anew at arrivals and ends."""

    name = "srtf"
    title = "Shortest remaining time first, preemptive"
    blocking = Blocking.SKIP
    preempts = True

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        return rows[np.argsort(jobs.remaining_s[rows], kind="stable")]


class ShortestRemainingService(ShortestRemainingTime):
    """By remaining run time times devices (Gu et al., NSDI 2019, "shortest-gpu")."""

    name = "srsf"
    title = "Shortest remaining service (time x devices) first, preemptive"

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        return rows[np.argsort(jobs.remaining_s[rows] * jobs.devices[rows], kind="stable")]
