"""What a policy is: an order, the rule behind a job that does not fit, and whether it preempts."""

import math
from enum import StrEnum

from cluster.core.workload import BoolColumn, IntColumn, IntMatrix, JobTable


class Blocking(StrEnum):
    """What the first job that does not fit means for those behind it."""

    STOP = "stop"
    SKIP = "skip"
    EASY = "easy"
    CONSERVATIVE = "conservative"


class Policy:
    """The order of the queue and the two rules that go with it; placement is chosen apart.

    Attributes:
        name: what the command line and the pages call it.
        title: one line for people, with the source.
        blocking: the rule behind a job that does not fit.
        preempts: whether the running set is chosen anew at every decision.
        static: whether a waiting job's place among the others never changes.
        reads_progress: whether the order itself depends on the progress columns, not only reviews.
        promises: live, jobs with a promised deadline go before everybody and take what they need.
        shares: live, who finds no free devices may join a running job on the same ones.
        sizes: live, it decides how many devices an elastic job gets, instead of filling like water.
        reads_kinds: it reads the columns about kinds, and `kinds` answers.
    """

    name = ""
    title = ""
    blocking = Blocking.STOP
    preempts = False
    static = False
    reads_progress = True
    promises = False
    shares = False
    sizes = False
    reads_kinds = False

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        """Return the rows, first to run first; ties by row.

        Args:
            rows: ascending row numbers of the active jobs (R,).
        """
        raise NotImplementedError

    def kinds(self, jobs: JobTable, rows: IntColumn) -> IntMatrix:
        """Return for each row the kinds it should try, best first (R, T), -1 for those it should not.

        Only where `reads_kinds`; called after `order` with the same rows.
        """
        raise NotImplementedError

    def declined(self, jobs: JobTable, rows: IntColumn) -> BoolColumn:
        """Return which rows should not start now even where devices are free (R,).

        Only where `sizes`; called after `order` with the same rows.
        """
        raise NotImplementedError

    def review(self, jobs: JobTable, rows: IntColumn, now: float) -> None:
        """Update the policy's own columns (queue levels, leases) at a time that `next_review_s` named."""

    def next_review_s(self, jobs: JobTable, rows: IntColumn, now: float) -> float:
        """Return the next time after `now` at which these rows can change the order by themselves;
        infinite if never.

        Called with all active rows after a review, and with those that started or stopped in between.
        """
        return math.inf
