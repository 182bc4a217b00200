"""Simulation of deadlines with admission: promised jobs first, the others on what is left."""

import math
import time
from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np

from cluster.core.placement.pool import NodePool, Slots
from cluster.core.placement.rules import PlaceRule, place_consolidated
from cluster.core.policies.deadline import Promise, earliest_deadline, plan_in_order
from cluster.core.simulator.clock import Clockwork, Observer, PreemptionCost, no_cost
from cluster.core.simulator.result import SimulationResult
from cluster.core.traces.nodes import NodeSpec
from cluster.core.workload import BoolColumn, JobTable


class DeadlineSimulation(Clockwork):
    """Two views of one cluster: promised jobs do not see the others, who give way to them."""

    def __init__(
        self,
        jobs: JobTable,
        nodes: Sequence[NodeSpec],
        place: PlaceRule = place_consolidated,
        cost: PreemptionCost = no_cost,
        observer: Observer | None = None,
        *,
        suggest: bool = False,
    ) -> None:
        super().__init__(jobs, nodes, place, cost, observer)
        self.promised_pool: NodePool = self.pool.copy()
        self.promised_slots: dict[int, Slots] = {}
        self.promises: list[Promise] = []
        self.others: list[tuple[float, int]] = []  # (remaining seconds, row), shortest first
        self.others_on: dict[int, set[int]] = {}
        self.turned_down: list[int] = []
        self.suggest = suggest
        self.suggestions: dict[int, float] = {}

    def _run_weightless(self, waiting: BoolColumn) -> None:
        late = self.jobs.submit_s + self.jobs.duration_s > self.jobs.deadline_s
        hopeless = np.flatnonzero(waiting & (self.jobs.devices == 0) & late)
        self.turned_down.extend(hopeless.tolist())
        waiting[hopeless] = False
        super()._run_weightless(waiting)

    def arrive(self, rows: list[int]) -> None:
        for row in rows:
            if math.isfinite(self.jobs.deadline_s[row]):
                self._admit(row)
            else:
                insort(self.others, (float(self.jobs.remaining_s[row]), row))

    def ended(self, row: int) -> None:
        if row in self.promised_slots:
            self.promised_pool.give_all(self.promised_slots.pop(row))
        else:
            self._forget_other(row)

    def decide(self) -> None:
        self._start_promised()
        self._start_others()

    def _admit(self, row: int) -> None:
        promise = Promise(
            float(self.jobs.deadline_s[row]),
            row,
            float(self.jobs.duration_s[row]),
            self.devices[row],
            self.allowed[int(self.jobs.kind[row])],
        )
        at = bisect_left(self.promises, promise)
        trial = [*self.promises[:at], promise, *self.promises[at:]]
        possible = self.now + promise.duration_s <= promise.deadline_s
        if possible and plan_in_order(
            self.promised_pool, self._promised_ends(), trial, self.now, self.place_rule
        ):
            self.promises = trial
            return
        self.turned_down.append(row)
        if self.suggest:
            self.suggestions[row] = earliest_deadline(
                self.promised_pool, self._promised_ends(), self.promises, promise, self.now, self.place_rule
            )

    def _promised_ends(self) -> list[tuple[float, Slots]]:
        return [(self.due_s(row), slots) for row, slots in self.promised_slots.items()]

    def _start_promised(self) -> None:
        started = 0
        for promise in self.promises:
            slots = self.place_rule(self.promised_pool, promise.devices, promise.allowed)
            if slots is None:
                break
            self._make_room(slots)
            self.pool.take_all(slots)
            self.promised_slots[promise.row] = slots
            self.start(promise.row, slots)
            started += 1
        del self.promises[:started]

    def _make_room(self, slots: Slots) -> None:
        """Stop jobs without a deadline, longest remaining first, until a placement is free."""
        for node, count in slots:
            while self.pool.free[node] < count:
                victim = max(self.others_on[node], key=lambda row: (self.due_s(row), row))
                self.stop(victim)
                self._forget_other(victim)
                insort(self.others, (float(self.jobs.remaining_s[victim]), victim))

    def _start_others(self) -> None:
        failed: set[tuple[int, int]] = set()
        left: list[tuple[float, int]] = []
        for position, (remaining, row) in enumerate(self.others):
            if not self.pool.total_free:
                left.extend(self.others[position:])
                break
            shape = (int(self.jobs.kind[row]), self.devices[row])
            slots = None if shape in failed else self.place(row)
            if slots is None:
                failed.add(shape)
                left.append((remaining, row))
                continue
            self.start(row, slots)
            for node, _ in slots:
                self.others_on.setdefault(node, set()).add(row)
        self.others = left

    def _forget_other(self, row: int) -> None:
        for members in self.others_on.values():
            members.discard(row)


def simulate_deadlines(
    jobs: JobTable,
    nodes: Sequence[NodeSpec],
    place: PlaceRule = place_consolidated,
    cost: PreemptionCost = no_cost,
    observer: Observer | None = None,
    *,
    suggest: bool = False,
) -> SimulationResult:
    """Simulate admission by deadline; with `suggest`, refusals carry the earliest deadline that would do."""
    began = time.perf_counter()
    simulation = DeadlineSimulation(jobs, nodes, place, cost, observer, suggest=suggest)
    simulation.run()
    result = simulation.result("deadline", time.perf_counter() - began)
    result.refused = np.sort(
        np.concatenate([result.refused, np.array(simulation.turned_down, dtype=np.int64)])
    )
    result.earliest_deadline_s = simulation.suggestions if suggest else None
    return result
