"""Conservative backfill: every job gets the earliest place in time that moves nobody else's, once, at
arrival.

With run times that are what they are declared to be, nothing ever ends early, so that a place in time once
given is also when the job starts: the profile of free devices per node is the whole state.
"""

import heapq
import math
import time
from collections.abc import Sequence

import numpy as np

from cluster.core.placement.pool import NodePool, Slots
from cluster.core.placement.rules import PlaceRule, place_consolidated
from cluster.core.simulator.clock import Clockwork, Observer
from cluster.core.simulator.result import SimulationResult
from cluster.core.traces.nodes import NodeSpec
from cluster.core.workload import IntColumn, JobTable


class Profile:
    """Free devices per node from each of B instants to the next one; the last one lasts for ever.

    Attributes:
        times: the instants (B,), ascending; the first one may lie in the past.
        free: free devices (B, N).
        most: the most free devices of a node (B,).
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.times = np.array([-math.inf])
        self.free = np.array([sizes], dtype=np.int64)
        self.most = self.free.max(axis=1)
        self.largest = int(self.most[0])
        self.sizes = list(sizes)

    def forget_before(self, now: float) -> None:
        """Drop the instants that are over."""
        over = int(np.searchsorted(self.times, now, side="right")) - 1
        if over > 0:
            self.times, self.free, self.most = self.times[over:], self.free[over:], self.most[over:]

    def earliest(
        self, devices: int, duration_s: float, now: float, place: PlaceRule, allowed: int = -1
    ) -> tuple[float, Slots]:
        """Return the earliest start at which a placement stays free for the whole run, and that placement."""
        starts_s = np.maximum(self.times, now)
        # What takes no time needs its devices at one instant all the same.
        ends = np.searchsorted(
            self.times, np.maximum(starts_s + duration_s, np.nextafter(starts_s, math.inf))
        )
        if place is place_consolidated and allowed == -1 and devices <= self.largest:
            candidates = self._on_one_node(devices, ends)
        else:
            candidates = np.flatnonzero(self.most > 0)
        for first in candidates.tolist():
            free = self.free[first : max(int(ends[first]), first + 1)].min(axis=0)
            if free.sum() < devices:
                continue
            slots = place(NodePool(self.sizes, free.tolist()), devices, allowed)
            if slots is not None:
                return float(starts_s[first]), slots
        raise AssertionError("in the end every device is free")

    def _on_one_node(self, devices: int, ends: IntColumn) -> IntColumn:
        """Return the instants from which some node stays free enough until the run's end, ascending."""
        instants = np.arange(len(self.times))
        short = np.where(self.free < devices, instants[:, None], len(self.times))
        next_short = np.minimum.accumulate(short[::-1], axis=0)[::-1]
        return np.flatnonzero((next_short >= np.maximum(ends, instants + 1)[:, None]).any(axis=1))

    def reserve(self, start_s: float, end_s: float, slots: Slots) -> None:
        """Take devices from start to end, for an instant at least."""
        first, last = self._split(start_s), self._split(max(end_s, math.nextafter(start_s, math.inf)))
        for node, count in slots:
            self.free[first:last, node] -= count
        self.most[first:last] = self.free[first:last].max(axis=1)

    def _split(self, time_s: float) -> int:
        at = int(np.searchsorted(self.times, time_s))
        if at == len(self.times) or self.times[at] != time_s:
            self.times = np.insert(self.times, at, time_s)
            self.free = np.insert(self.free, at, self.free[at - 1], axis=0)
            self.most = np.insert(self.most, at, self.most[at - 1])
        return at


class ConservativeSimulation(Clockwork):
    """Each arrival gets its place in time; a start is due when its time has come."""

    def __init__(
        self,
        jobs: JobTable,
        nodes: Sequence[NodeSpec],
        place: PlaceRule = place_consolidated,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(jobs, nodes, place, observer=observer)
        self.profile = Profile(self.pool.sizes)
        self.duration = self.jobs.duration_s.tolist()
        self.booked: list[tuple[float, int, Slots]] = []

    def arrive(self, rows: list[int]) -> None:
        self.profile.forget_before(self.now)
        for row in rows:
            allowed = self.allowed[int(self.jobs.kind[row])]
            start_s, slots = self.profile.earliest(
                self.devices[row], self.duration[row], self.now, self.place_rule, allowed
            )
            self.profile.reserve(start_s, start_s + self.duration[row], slots)
            heapq.heappush(self.booked, (start_s, row, slots))

    def next_review_s(self) -> float:
        return self.booked[0][0] if self.booked else math.inf

    def decide(self) -> None:
        while self.booked and self.booked[0][0] <= self.now:
            _, row, slots = heapq.heappop(self.booked)
            self.pool.take_all(slots)
            self.start(row, slots)


def simulate_conservative(
    jobs: JobTable,
    nodes: Sequence[NodeSpec],
    place: PlaceRule = place_consolidated,
    observer: Observer | None = None,
) -> SimulationResult:
    """Simulate conservative backfill by arrival; limits are taken to be the run times."""
    began = time.perf_counter()
    simulation = ConservativeSimulation(jobs, nodes, place, observer)
    simulation.run()
    return simulation.result("conservative", time.perf_counter() - began)
