"""Finish-time fairness (Themis: Mahajan et al., NSDI 2020): leases go to those furthest behind an
exclusive share.

rho = time in the shared cluster / time alone on an equal share of it; 1 is fair. The paper auctions the
free devices among the worst 1 - f of the jobs; this is its filter without the auction: the offer goes to
the same jobs, in the order in which each device improves rho most.
"""

import math

import numpy as np

from cluster.core.policies.interface import Blocking, Policy
from cluster.core.workload import FloatColumn, IntColumn, JobTable

DEFAULT_LEASE_S = 1200.0
DEFAULT_FILTER = 0.8


def finish_time_fairness(jobs: JobTable, rows: IntColumn, now: float, devices: int) -> FloatColumn:
    """Return rho of each active row (R,), were it given all its devices from now on.

    Alone, a job has `devices` over the number of active jobs, and at least one device.
    """
    share = max(devices / max(len(rows), 1), 1.0)
    alone = jobs.duration_s[rows] * np.maximum(jobs.devices[rows] / share, 1.0)
    shared = np.maximum(now - jobs.submit_s[rows], 0.0) + jobs.remaining_s[rows]
    return shared / np.maximum(alone, 1e-9)


class FinishTimeFairness(Policy):
    """Running leases first, then the worst rho; all leases end together, on multiples of `lease_s`.

    With `lease_s` 0 nobody is protected here: live, the minimum run time does that.
    """

    name = "themis"
    title = "Finish-time fairness with leases (Themis), preemptive at lease ends"
    blocking = Blocking.SKIP
    preempts = True

    def __init__(
        self, devices: int, lease_s: float = DEFAULT_LEASE_S, filter_share: float = DEFAULT_FILTER
    ) -> None:
        self.devices = devices
        self.lease_s = lease_s
        self.filter_share = filter_share

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        rho = finish_time_fairness(jobs, rows, now, self.devices)
        offered = max(1, math.ceil((1 - self.filter_share) * len(rows)))
        stage = np.full(len(rows), 2)
        stage[np.argsort(-rho, kind="stable")[:offered]] = 1
        if self.lease_s and now % self.lease_s:
            stage[jobs.running[rows]] = 0
        # A second of waiting raises rho by 1 / (time alone), and a device given to a small gang ends more
        # waits.
        gain = 1.0 / np.maximum(jobs.duration_s[rows] * jobs.devices[rows], 1e-9)
        return rows[np.lexsort((rows, np.where(stage == 1, -gain, -rho), stage))]

    def next_review_s(self, jobs: JobTable, rows: IntColumn, now: float) -> float:
        if not self.lease_s or not jobs.running[rows].any():
            return math.inf
        return (math.floor(now / self.lease_s) + 1) * self.lease_s
