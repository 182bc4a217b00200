"""Simulation of packing: two jobs on the same devices, each at its measured share of its own speed."""

import math
import time
from collections.abc import Sequence

import numpy as np

from cluster.core.placement.pool import NodePool, Slots
from cluster.core.placement.rules import PlaceRule, place_consolidated
from cluster.core.policies.lucid import Host, PairSpeeds, pick_host, sharing_priority
from cluster.core.simulator.clock import fresh_copy, kind_masks
from cluster.core.simulator.result import SimulationResult
from cluster.core.traces.nodes import NodeSpec, check_nodes
from cluster.core.workload import JobTable


class SharingSimulation:
    """Shortest first without preemption; who finds no free devices may join a running job."""

    def __init__(
        self, jobs: JobTable, nodes: Sequence[NodeSpec], speeds: PairSpeeds, place: PlaceRule
    ) -> None:
        check_nodes(nodes)
        self.jobs, self.speeds, self.place = fresh_copy(jobs), speeds, place
        self.pool = NodePool([node.devices for node in nodes])
        self.allowed, self.capacity = kind_masks(jobs, nodes)
        self.slots: dict[int, Slots] = {}
        self.partner: dict[int, int] = {}
        self.rate: dict[int, float] = {}
        self.waiting: list[int] = []
        self.now = 0.0
        self.start_s = np.full(len(jobs), np.nan)
        self.end_s = np.full(len(jobs), np.nan)
        self.shared_starts = 0

    def run(self) -> None:
        """Run until every job that fits the cluster has ended."""
        limits = np.array([self.capacity[kind] for kind in self.jobs.kind.tolist()])
        self.refused = np.flatnonzero(self.jobs.devices > limits)
        arrivals = np.setdiff1d(np.arange(len(self.jobs)), self.refused).tolist()
        at = 0
        while True:
            upcoming = float(self.jobs.submit_s[arrivals[at]]) if at < len(arrivals) else math.inf
            then = min(upcoming, self._next_end_s())
            if then == math.inf:
                break
            self._advance(then)
            while at < len(arrivals) and self.jobs.submit_s[arrivals[at]] <= then:
                self.waiting.append(arrivals[at])
                at += 1
            self._decide()

    def _next_end_s(self) -> float:
        return min(
            (self.now + self.jobs.remaining_s[row] / rate for row, rate in self.rate.items()),
            default=math.inf,
        )

    def _advance(self, then: float) -> None:
        for row, rate in self.rate.items():
            self.jobs.remaining_s[row] -= rate * (then - self.now)
        self.now = then
        for row in [row for row in self.rate if self.jobs.remaining_s[row] <= 1e-6]:
            self.end_s[row] = then
            del self.rate[row]
            other = self.partner.pop(row, None)
            if other is None:
                self.pool.give_all(self.slots.pop(row))
            else:
                del self.partner[other], self.slots[row]
                self.rate[other] = 1.0

    def _decide(self) -> None:
        jobs = self.jobs
        self.waiting.sort(key=lambda row: (self._priority(row), row))
        left = []
        for row in self.waiting:
            devices = int(jobs.devices[row])
            slots = self.place(self.pool, devices, self.allowed[int(jobs.kind[row])]) if devices else []
            if slots is not None:
                self._start(row, slots, 1.0)
            elif not self._join(row, devices):
                left.append(row)
        self.waiting = left

    def _join(self, row: int, devices: int) -> bool:
        jobs = self.jobs
        hosts = [
            Host(other, int(jobs.devices[other]), self._priority(other))
            for other in self.rate
            if other not in self.partner
        ]
        host = pick_host(row, devices, self._priority(row), hosts, self.speeds)
        if host is None:
            return False
        guest_keeps, host_keeps = self.speeds(row, host.row)
        self.partner[row], self.partner[host.row] = host.row, row
        self.rate[host.row] = host_keeps
        self._start(row, self.slots[host.row], guest_keeps)
        self.shared_starts += 1
        return True

    def _priority(self, row: int) -> float:
        return sharing_priority(float(self.jobs.remaining_s[row]), int(self.jobs.devices[row]))

    def _start(self, row: int, slots: Slots, rate: float) -> None:
        self.slots[row], self.rate[row], self.start_s[row] = slots, rate, self.now


def simulate_sharing(
    jobs: JobTable, nodes: Sequence[NodeSpec], speeds: PairSpeeds, place: PlaceRule = place_consolidated
) -> SimulationResult:
    """Simulate packing; `speeds` of two rows is what each keeps of its speed, 0 for no sharing."""
    began = time.perf_counter()
    simulation = SharingSimulation(jobs, nodes, speeds, place)
    simulation.run()
    return SimulationResult(
        jobs=simulation.jobs,
        policy="lucid",
        start_s=simulation.start_s,
        end_s=simulation.end_s,
        refused=simulation.refused,
        preemptions=0,
        devices=simulation.pool.total,
        wall_s=time.perf_counter() - began,
    )
