"""Two-dimensional least attained service in discrete queues (Tiresias: Gu et al., NSDI 2019, section 3)."""

import math
from collections.abc import Sequence

import numpy as np

from cluster.core.policies.interface import Blocking, Policy
from cluster.core.workload import IntColumn, JobTable

DEFAULT_THRESHOLDS_DEVICE_S = (18_000.0,)
DEFAULT_ROUND_S = 60.0


class LeastAttainedService(Policy):
    """Queues by attained device-seconds, first in first out inside a queue.

    Demotion and promotion are looked at on rounds. A job is promoted to the first queue when its present
    wait reaches `promote_after` times what it has run; infinity switches that off.
    """

    name = "las"
    title = "Least attained service in two queues (Tiresias), preemptive"
    blocking = Blocking.SKIP
    preempts = True
    reads_progress = False

    def __init__(
        self,
        thresholds_device_s: Sequence[float] = DEFAULT_THRESHOLDS_DEVICE_S,
        round_s: float = DEFAULT_ROUND_S,
        promote_after: float = math.inf,
    ) -> None:
        self.thresholds = np.sort(np.asarray(thresholds_device_s, dtype=np.float64))
        self.round_s = round_s
        self.promote_after = promote_after

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        level = jobs.level[rows]
        return np.concatenate([rows[level == queue] for queue in range(len(self.thresholds) + 1)])

    def review(self, jobs: JobTable, rows: IntColumn, now: float) -> None:
        if math.isfinite(self.promote_after):
            starved = rows[self._promotion_s(jobs, rows) <= now]
            jobs.promoted_device_s[starved] = jobs.attained_device_s[starved]
        service = jobs.attained_device_s[rows] - jobs.promoted_device_s[rows]
        # Strictly above: a job that has attained exactly the threshold is still in the queue before it.
        jobs.level[rows] = np.searchsorted(self.thresholds, service, side="left")

    def next_review_s(self, jobs: JobTable, rows: IntColumn, now: float) -> float:
        crossing = math.inf
        for row in rows[jobs.running[rows]].tolist():
            level = jobs.level[row]
            if level < len(self.thresholds):
                missing = self.thresholds[level] - (jobs.attained_device_s[row] - jobs.promoted_device_s[row])
                crossing = min(crossing, jobs.refreshed_s[row] + max(missing, 0.0) / jobs.devices[row])
        if crossing < math.inf:
            crossing = self._round_after(max(crossing, now))
        if not math.isfinite(self.promote_after):
            return crossing
        promotion = float(np.min(self._promotion_s(jobs, rows), initial=math.inf))
        if not math.isfinite(promotion):
            return crossing
        return min(crossing, max(self._round_after(now), math.ceil(promotion / self.round_s) * self.round_s))

    def _promotion_s(self, jobs: JobTable, rows: IntColumn) -> np.ndarray:
        """Return when each row's wait reaches the knob (R,); infinite where it cannot be promoted."""
        may = ~jobs.running[rows] & (jobs.level[rows] > 0) & (jobs.executed_s[rows] > 0)
        return np.where(
            may, jobs.waiting_since_s[rows] + self.promote_after * jobs.executed_s[rows], math.inf
        )

    def _round_after(self, time: float) -> float:
        """Return the first round strictly after a time."""
        return (math.floor(time / self.round_s) + 1) * self.round_s
