"""Links: what is slow in a step without being anybody's computation."""

import numpy as np

from telemetry.core.detector.baseline import Baselines
from telemetry.core.detector.comparison import against_peers
from telemetry.core.detector.fleet import Array, Assignment, Fleet
from telemetry.core.detector.ledger import Ledger
from telemetry.core.detector.samples import StepBatch
from telemetry.core.detector.verdicts import Subject, VerdictKind
from telemetry.core.detector.watch import Finding, Watch

LINK = VerdictKind.LINK_FAIL_SLOW


class LinkTests:
    """Inside tensor-parallel groups by what even their slowest rank waits; between them by wall time."""

    def __init__(self, ledger: Ledger, fleet: Fleet) -> None:
        self.ledger = ledger
        self.fleet = fleet
        self.group_usual, self.wall_usual = Baselines(), Baselines()
        self.group_watch = Watch(ledger, self._group_finding)
        self.wall_watch = Watch(ledger, self._wall_finding)

    def update(
        self, rows: StepBatch, where: Assignment, busiest_s: float, step: int, first_step: int
    ) -> None:
        """Take one step; `busiest_s` is the largest computation of any cell, without waiting."""
        self._judge_groups(rows, where, step, first_step)
        self._judge_wall(rows, busiest_s, step, first_step)

    def refresh(self) -> None:
        """Bring the slowdowns of incidents that are going on up to date."""
        self.group_watch.refresh()
        self.wall_watch.refresh()

    def _judge_groups(self, rows: StepBatch, where: Assignment, step: int, first_step: int) -> None:
        if not np.isfinite(rows.wait_s).any():
            return
        excess = group_excess(rows, where, self.fleet)
        self.group_usual.grow(len(excess))
        change = self.group_usual.change(excess)
        peers = against_peers(excess, self.fleet.stage_of_group)
        self.group_watch.update(np.where(np.isfinite(peers), peers, change), step, first_step)
        self.group_usual.learn(excess, ~self.group_watch.slow(len(excess)))

    def _judge_wall(self, rows: StepBatch, busiest_s: float, step: int, first_step: int) -> None:
        """Judge wall time over the busiest computation against its own past.

        The past is learned only while nothing is wrong, for a slow device changes the ratio too.
        """
        share = wall_share(rows, busiest_s)
        if np.isnan(share[0]):
            return
        self.wall_usual.grow(1)
        self.wall_watch.update(self.wall_usual.change(share), step, first_step)
        if not self.ledger.any_fault_open:
            self.wall_usual.learn(share, ~self.wall_watch.slow(1))

    def _group_finding(self, index: int) -> Finding:
        replica, stage = list(self.fleet.groups)[index]
        return Finding(LINK, Subject(None, replica, stage, None), "group_time_over_slowest_rank", [])

    def _wall_finding(self, index: int) -> Finding:
        return Finding(LINK, Subject(), "wall_over_busiest_compute", [])


def group_excess(rows: StepBatch, where: Assignment, fleet: Fleet) -> Array:
    """Return each group's log time over that of its slowest rank's own work; NaN where waits are missing.

    The slowest rank of a group waits least, and with sound links hardly at all.
    """
    size = len(fleet.groups)
    own = np.full(size, -np.inf)
    whole = np.full(size, -np.inf)
    unknown = np.bincount(where.group, weights=~np.isfinite(rows.wait_s), minlength=size) > 0
    np.maximum.at(own, where.group, rows.compute_s - np.nan_to_num(rows.wait_s))
    np.maximum.at(whole, where.group, rows.compute_s)
    ranks = np.bincount(where.group, minlength=size)
    full = np.array([len(members) for members in fleet.members])
    judged = (ranks == full) & (ranks > 1) & ~unknown
    excess = np.full(size, np.nan)
    excess[judged] = np.log(whole[judged] / own[judged])
    return excess


def wall_share(rows: StepBatch, busiest_s: float) -> Array:
    """Return the log of the step's wall time over the busiest computation, NaN where it is not given."""
    walls = rows.wall_s[np.isfinite(rows.wall_s)]
    return np.array([np.log(np.median(walls) / busiest_s) if len(walls) else np.nan])
