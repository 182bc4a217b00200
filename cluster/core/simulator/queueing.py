"""Policies that never stop a running job: FIFO, SJF, backfill and their kin."""

import math
import time
from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np

from cluster.core.placement.pool import NodePool
from cluster.core.placement.rules import PlaceRule, place_consolidated
from cluster.core.policies.interface import Blocking, Policy
from cluster.core.simulator.clock import Clockwork, Observer
from cluster.core.simulator.result import SimulationResult
from cluster.core.traces.nodes import NodeSpec
from cluster.core.workload import ANY_KIND, JobTable


class QueueSimulation(Clockwork):
    """Waiting jobs in a fixed order; who fits by the policy's blocking rule starts."""

    def __init__(
        self,
        jobs: JobTable,
        nodes: Sequence[NodeSpec],
        policy: Policy,
        place: PlaceRule = place_consolidated,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(jobs, nodes, place, observer=observer)
        self.policy = policy
        self.kind = jobs.kind.tolist()
        self.limit = jobs.limit_s.tolist()
        everyone = np.arange(len(jobs), dtype=np.int64)
        self.row_at = policy.order(self.jobs, everyone, 0.0).tolist()
        self.rank_of = np.argsort(np.asarray(self.row_at, dtype=np.int64)).tolist()
        self.pending: list[int] = []  # ranks, ascending

    def arrive(self, rows: list[int]) -> None:
        for row in rows:
            insort(self.pending, self.rank_of[row])

    def decide(self) -> None:
        if not self.pending or not self.pool.total_free:
            return
        if self.policy.blocking is Blocking.EASY:
            self._start_easy()
        else:
            self._start_in_order(stop=self.policy.blocking is Blocking.STOP)

    def _start_in_order(self, *, stop: bool) -> None:
        """Start who fits; with `stop`, a job that does not fit blocks all who want the same devices."""
        failed: set[tuple[int, int]] = set()
        blocked: set[int] = set()
        left: list[int] = []
        for position, rank in enumerate(self.pending):
            row = self.row_at[rank]
            kind = self.kind[row]
            if not self.pool.total_free or (stop and ANY_KIND in blocked):
                left.extend(self.pending[position:])
                break
            shape = (kind, self.devices[row])
            slots = None
            if shape not in failed and kind not in blocked and not (stop and blocked and kind == ANY_KIND):
                slots = self.place(row)
            if slots is not None:
                self.start(row, slots)
                continue
            failed.add(shape)
            left.append(rank)
            if stop:
                blocked.add(kind)
        self.pending = left

    def _start_easy(self) -> None:
        """Start from the head while it fits, then whoever delays the head not at all."""
        while self.pending:
            row = self.row_at[self.pending[0]]
            slots = self.place(row)
            if slots is None:
                break
            self.start(row, slots)
            del self.pending[0]
        if len(self.pending) > 1 and self.pool.total_free:
            self._start_behind(self.row_at[self.pending[0]])

    def _start_behind(self, head: int) -> None:
        """Start later jobs that end before the head's reservation or stay outside it."""
        reserved_s, shadow = self._reserve(head)
        failed: set[tuple[int, int, bool]] = set()
        started: list[int] = []
        for rank in self.pending[1:]:
            if not self.pool.total_free:
                break
            row = self.row_at[rank]
            brief = self.now + self.limit[row] <= reserved_s
            shape = (self.kind[row], self.devices[row], brief)
            if shape in failed:
                continue
            if self._start_beside(row, shadow, brief=brief):
                started.append(rank)
            else:
                failed.add(shape)
        for rank in started:
            del self.pending[bisect_left(self.pending, rank)]

    def _start_beside(self, row: int, shadow: NodePool, *, brief: bool) -> bool:
        devices, allowed = self.devices[row], self.allowed[self.kind[row]]
        if not brief and self.pool.could_hold(devices, allowed):
            allowed &= shadow.at_least(devices)
        slots = self.place_rule(self.pool, devices, allowed) if allowed else None
        if slots is None:
            return False
        if not brief:
            if any(shadow.free[node] < count for node, count in slots):
                self.pool.give_all(slots)
                return False
            shadow.take_all(slots)
        self.start(row, slots)
        return True

    def _reserve(self, head: int) -> tuple[float, NodePool]:
        """Return the head's earliest start by the running jobs' limits, and what is free then beside it."""
        shadow = self.pool.copy()
        ends = sorted((self._believed_end_s(row), row) for row in self.slots)
        wanted, allowed = self.devices[head], self.allowed[self.kind[head]]
        for position, (end_s, row) in enumerate(ends):
            shadow.give_all(self.slots[row])
            last = position + 1 == len(ends) or ends[position + 1][0] > end_s
            if last and self.place_rule(shadow, wanted, allowed) is not None:
                return end_s, shadow
        return math.inf, shadow

    def _believed_end_s(self, row: int) -> float:
        return max(self.now, float(self.jobs.started_s[row]) + self.limit[row])


def simulate_queue(
    jobs: JobTable,
    nodes: Sequence[NodeSpec],
    policy: Policy,
    place: PlaceRule = place_consolidated,
    observer: Observer | None = None,
) -> SimulationResult:
    """Simulate a policy that never preempts and whose order is fixed at arrival."""
    began = time.perf_counter()
    simulation = QueueSimulation(jobs, nodes, policy, place, observer)
    simulation.run()
    return simulation.result(policy.name, time.perf_counter() - began)
