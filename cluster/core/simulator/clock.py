"""The clockwork every event simulation shares: arrivals, ends, placements, starts and stops.

At one instant all ends come first, then all arrivals, then one decision.
"""

import heapq
import math
from collections.abc import Callable, Sequence

import numpy as np

from cluster.core.placement.pool import NodePool, Slots
from cluster.core.placement.rules import PlaceRule, place_consolidated
from cluster.core.simulator.result import SimulationResult
from cluster.core.traces.nodes import NodeSpec, check_nodes
from cluster.core.workload import ANY_KIND, BoolColumn, IntColumn, JobTable

PreemptionCost = Callable[[int], float]  # devices of the stopped job -> seconds added to what it has left
Observer = Callable[["Clockwork"], None]

# The rows a simulation may change; the table itself stays as it came.
PROGRESS = (
    "remaining_s",
    "attained_device_s",
    "executed_s",
    "waiting_since_s",
    "started_s",
    "refreshed_s",
    "level",
    "promoted_device_s",
    "running",
)


def no_cost(devices: int) -> float:
    """Return 0: a stop loses nothing."""
    return 0.0


def checkpoint_cost(devices: int) -> float:
    """Return the seconds a stop costs in the Helios simulator (Hu et al., SC 2021), by gang size."""
    return 7.0 if devices <= 1 else 30.0 if devices <= 8 else 60.0


class Clockwork:
    """State of a simulation in time; subclasses decide.

    Attributes:
        jobs: a copy of the table, its progress columns refreshed before each decision.
        pool: free devices.
        slots: where each running row is.
        now: the present.
    """

    def __init__(
        self,
        jobs: JobTable,
        nodes: Sequence[NodeSpec],
        place: PlaceRule = place_consolidated,
        cost: PreemptionCost = no_cost,
        observer: Observer | None = None,
    ) -> None:
        check_nodes(nodes)
        self.jobs = fresh_copy(jobs)
        self.pool = NodePool([node.devices for node in nodes])
        self.place_rule, self.cost, self.observer = place, cost, observer
        self.slots: dict[int, Slots] = {}
        self.now = -math.inf
        self.preemptions = 0
        self.start_s = np.full(len(jobs), np.nan)
        self.end_s = np.full(len(jobs), np.nan)
        self.allowed, self.capacity = kind_masks(self.jobs, nodes)
        limits = np.array([self.capacity[kind] for kind in jobs.kind.tolist()], dtype=np.int64)
        self.refused = np.flatnonzero(jobs.devices > limits)
        self.devices = jobs.devices.tolist()
        self._ends: list[tuple[float, int]] = []
        self._due_s: dict[int, float] = {}

    def run(self) -> None:
        """Run until every job that was let in has ended."""
        waiting = np.ones(len(self.jobs), dtype=bool)
        waiting[self.refused] = False
        self._run_weightless(waiting)
        arrivals = np.flatnonzero(waiting).tolist()
        times = self.jobs.submit_s[arrivals].tolist()
        at, count = 0, len(arrivals)
        while True:
            upcoming = times[at] if at < count else math.inf
            self.now = min(upcoming, self._next_end_s(), self.next_review_s())
            if self.now == math.inf:
                break
            self._end_due()
            first = at
            while at < count and times[at] <= self.now:
                at += 1
            self.arrive(arrivals[first:at])
            self.decide()
            if self.observer:
                self.observer(self)

    def arrive(self, rows: list[int]) -> None:
        """Take in jobs that were submitted now."""
        raise NotImplementedError

    def decide(self) -> None:
        """Stop and start jobs."""
        raise NotImplementedError

    def ended(self, row: int) -> None:
        """Forget a job that has just ended."""

    def next_review_s(self) -> float:
        """Return when to decide although nothing arrives or ends."""
        return math.inf

    def place(self, row: int) -> Slots | None:
        """Take devices for a row, or return None."""
        return self.place_rule(self.pool, self.devices[row], self.allowed[int(self.jobs.kind[row])])

    def start(self, row: int, slots: Slots) -> None:
        """Run a row on devices that were taken for it."""
        self.slots[row] = slots
        if math.isnan(self.start_s[row]):
            self.start_s[row] = self.now
        self.jobs.running[row] = True
        self.jobs.started_s[row] = self.jobs.refreshed_s[row] = self.now
        due = self.now + float(self.jobs.remaining_s[row])
        self._due_s[row] = due
        heapq.heappush(self._ends, (due, row))

    def stop(self, row: int) -> None:
        """Take a running row off its devices; what it has left keeps, plus the cost of the stop."""
        devices = self.devices[row]
        ran = self.now - self.jobs.refreshed_s[row]
        self.jobs.executed_s[row] += ran
        self.jobs.attained_device_s[row] += ran * devices
        self.jobs.remaining_s[row] += self.cost(devices) - ran
        self.pool.give_all(self.slots.pop(row))
        self._leave(row)
        self.jobs.waiting_since_s[row] = self.now
        self.preemptions += 1

    def refresh(self, rows: IntColumn) -> None:
        """Bring the progress columns of running rows up to now."""
        jobs = self.jobs
        ran = self.now - jobs.refreshed_s[rows]
        jobs.remaining_s[rows] -= ran
        jobs.executed_s[rows] += ran
        jobs.attained_device_s[rows] += ran * jobs.devices[rows]
        jobs.refreshed_s[rows] = self.now

    def running_rows(self) -> IntColumn:
        """Return the running rows in order of their start."""
        return np.fromiter(self.slots, dtype=np.int64, count=len(self.slots))

    def due_s(self, row: int) -> float:
        """Return when a running row will end."""
        return self._due_s[row]

    def result(self, policy: str, wall_s: float) -> SimulationResult:
        """Return the times of every job."""
        return SimulationResult(
            jobs=self.jobs,
            policy=policy,
            start_s=self.start_s,
            end_s=self.end_s,
            refused=self.refused,
            preemptions=self.preemptions,
            devices=self.pool.total,
            wall_s=wall_s,
        )

    def _run_weightless(self, waiting: BoolColumn) -> None:
        """Jobs without devices run at once and take nothing."""
        free_riders = np.flatnonzero(waiting & (self.jobs.devices == 0))
        self.start_s[free_riders] = self.jobs.submit_s[free_riders]
        self.end_s[free_riders] = self.jobs.submit_s[free_riders] + self.jobs.duration_s[free_riders]
        waiting[free_riders] = False

    def _next_end_s(self) -> float:
        ends = self._ends
        while ends and self._due_s.get(ends[0][1]) != ends[0][0]:
            heapq.heappop(ends)  # that run was stopped
        return ends[0][0] if ends else math.inf

    def _end_due(self) -> None:
        while self._next_end_s() <= self.now:
            due, row = heapq.heappop(self._ends)
            self.pool.give_all(self.slots.pop(row))
            self._leave(row)
            self.end_s[row] = due
            self.jobs.remaining_s[row] = 0.0
            self.ended(row)

    def _leave(self, row: int) -> None:
        del self._due_s[row]
        self.jobs.running[row] = False
        self.jobs.started_s[row] = math.nan


def fresh_copy(jobs: JobTable) -> JobTable:
    """Return a table that shares the fixed columns and owns its progress columns."""
    columns = {name: getattr(jobs, name) for name in JobTable.__dataclass_fields__}
    return JobTable(**{name: value.copy() if name in PROGRESS else value for name, value in columns.items()})


def kind_masks(jobs: JobTable, nodes: Sequence[NodeSpec]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the set of nodes and the number of devices of each kind."""
    allowed, capacity = {ANY_KIND: -1}, {ANY_KIND: sum(node.devices for node in nodes)}
    for code, kind in enumerate(jobs.kinds):
        members = [number for number, node in enumerate(nodes) if node.kind == kind]
        allowed[code] = sum(1 << number for number in members)
        capacity[code] = sum(nodes[number].devices for number in members)
    return allowed, capacity
