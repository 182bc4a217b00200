"""First in, first out: with and without going on behind a job that does not fit."""

from cluster.core.policies.interface import Blocking, Policy
from cluster.core.workload import IntColumn, JobTable


class Fifo(Policy):
    """By arrival; the first job that does not fit stops those behind it."""

    name = "fifo"
    title = "First in, first out; the head of the line blocks"
    static = True

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        return rows


class FifoSkip(Fifo):
    """By arrival, going on behind a job that does not fit; large gangs can starve."""

    name = "fifo-skip"
    title = "First in, first out, later jobs pass one that does not fit"
    blocking = Blocking.SKIP
