"""Shortest job first: the classic oracle without preemption."""

import numpy as np

from cluster.core.policies.interface import Policy
from cluster.core.workload import IntColumn, JobTable


class ShortestJobFirst(Policy):
    """By run time; the first job that does not fit stops those behind it."""

    name = "sjf"
    title = "Shortest job first, never stops a running job"
    static = True

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        return rows[np.argsort(jobs.duration_s[rows], kind="stable")]
