"""Policies that choose the running set anew at every decision: SRTF, LAS and their kin."""

import math
import time
from collections.abc import Sequence

import numpy as np

from cluster.core.placement.rules import PlaceRule, place_consolidated
from cluster.core.policies.interface import Policy
from cluster.core.simulator.clock import Clockwork, Observer, PreemptionCost, no_cost
from cluster.core.simulator.result import SimulationResult
from cluster.core.traces.nodes import NodeSpec
from cluster.core.workload import ANY_KIND, BoolColumn, IntColumn, JobTable


def choose_by_count(devices: IntColumn, capacity: int) -> BoolColumn:
    """Return who runs: in order, everyone who does not exceed what is left (R,)."""
    total = devices.cumsum()
    fitting = int(total.searchsorted(capacity, side="right"))
    chosen = np.zeros(len(devices), dtype=np.bool_)
    chosen[:fitting] = True
    if fitting == len(devices):
        return chosen
    left = capacity - (int(total[fitting - 1]) if fitting else 0)
    where = np.arange(fitting + 1, len(devices)) if left else ()
    while left and len(where):
        where = where[devices[where] <= left]
        total = devices[where].cumsum()
        fitting = int(total.searchsorted(left, side="right"))
        chosen[where[:fitting]] = True
        left -= int(total[fitting - 1]) if fitting else 0
        where = where[fitting + 1 :]
    return chosen


def choose_by_kind(devices: list[int], kinds: list[int], capacity: dict[int, int]) -> BoolColumn:
    """Return who runs where kinds matter: neither a kind nor the whole may be exceeded (R,)."""
    left = dict(capacity)
    chosen = np.zeros(len(devices), dtype=np.bool_)
    for position, (count, kind) in enumerate(zip(devices, kinds, strict=True)):
        if count <= left[ANY_KIND] and count <= left[kind]:
            chosen[position] = True
            left[ANY_KIND] -= count
            if kind != ANY_KIND:
                left[kind] -= count
            if not left[ANY_KIND]:
                break
    return chosen


class PreemptiveSimulation(Clockwork):
    """Choose by count in the policy's order, stop the others, place the new ones."""

    def __init__(
        self,
        jobs: JobTable,
        nodes: Sequence[NodeSpec],
        policy: Policy,
        place: PlaceRule = place_consolidated,
        cost: PreemptionCost = no_cost,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(jobs, nodes, place, cost, observer)
        self.policy = policy
        self.kinds_matter = bool((jobs.kind != ANY_KIND).any())
        self._active = np.zeros(64, dtype=np.int64)
        self._count = 0
        self._review_s = math.inf

    def active(self) -> IntColumn:
        """Return the rows that wait or run, ascending."""
        return self._active[: self._count]

    def arrive(self, rows: list[int]) -> None:
        if self._count + len(rows) > len(self._active):
            grown = np.zeros(2 * (self._count + len(rows)), dtype=np.int64)
            grown[: self._count] = self._active[: self._count]
            self._active = grown
        self._active[self._count : self._count + len(rows)] = rows
        self._count += len(rows)

    def ended(self, row: int) -> None:
        active = self._active
        at = int(np.searchsorted(active[: self._count], row))
        active[at : self._count - 1] = active[at + 1 : self._count]
        self._count -= 1

    def next_review_s(self) -> float:
        return self._review_s

    def decide(self) -> None:
        rows = self.active()
        reviewing = self.now >= self._review_s
        if reviewing or self.policy.reads_progress:
            self.refresh(self.running_rows())
        if reviewing:
            self.policy.review(self.jobs, rows, self.now)
            self._review_s = math.inf
        order = self.policy.order(self.jobs, rows, self.now)
        moved = self._apply(order, self._chosen(order))
        touched = rows if reviewing else np.array(moved, dtype=np.int64)
        if len(touched):
            self._review_s = min(self._review_s, self.policy.next_review_s(self.jobs, touched, self.now))

    def _chosen(self, order: IntColumn) -> BoolColumn:
        if not self.kinds_matter:
            return choose_by_count(self.jobs.devices[order], self.pool.total)
        return choose_by_kind(
            self.jobs.devices[order].tolist(), self.jobs.kind[order].tolist(), self.capacity
        )

    def _apply(self, order: IntColumn, chosen: BoolColumn) -> list[int]:
        """Stop who was not chosen, place who newly was; return who stopped or started."""
        differs = chosen != self.jobs.running[order]
        newly = order[differs & chosen].tolist()
        moved: list[int] = order[differs & ~chosen].tolist()
        for row in moved:
            self.stop(row)
        failed: set[tuple[int, int]] = set()
        for row in newly:
            shape = (int(self.jobs.kind[row]), self.devices[row])
            slots = None if shape in failed else self.place(row)
            if slots is None:
                failed.add(shape)
                continue
            self.start(row, slots)
            moved.append(row)
        return moved


def simulate_preemptive(
    jobs: JobTable,
    nodes: Sequence[NodeSpec],
    policy: Policy,
    place: PlaceRule = place_consolidated,
    cost: PreemptionCost = no_cost,
    observer: Observer | None = None,
) -> SimulationResult:
    """Simulate a policy that chooses its running set anew at every decision."""
    began = time.perf_counter()
    simulation = PreemptiveSimulation(jobs, nodes, policy, place, cost, observer)
    simulation.run()
    return simulation.result(policy.name, time.perf_counter() - began)
