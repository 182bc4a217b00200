"""The platform's own order: who has waited past the bound, deadline slack, rank in the fair tree, arrival."""

import numpy as np

from cluster.core.policies.interface import Blocking, Policy
from cluster.core.workload import IntColumn, JobTable

SLACK_STEP_S = 600.0
URGENT_S = 4 * 3600.0


class FairShare(Policy):
    """Deadlines that become tight first, then the fair tree, then arrival; nothing runs for ever unseen.

    A deadline counts only once its slack is under `urgent_s`, so that a far one gives nobody an advantage.
    """

    name = "fair"
    title = "Deadline slack, then fair share of the team and user, then arrival"
    blocking = Blocking.EASY

    def __init__(self, urgent_s: float = URGENT_S) -> None:
        self.urgent_s = urgent_s

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        slack = jobs.deadline_s[rows] - now - jobs.remaining_s[rows]
        step = np.where(slack < self.urgent_s, np.floor(slack / SLACK_STEP_S), np.inf)
        return rows[np.lexsort((rows, jobs.fair_rank[rows], step))]
