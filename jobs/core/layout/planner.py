"""The joint planner: tensor-parallel groups, stage order, layers and micro-batches at once.

Small instances are solved with proof; large ones get good plans at once, better ones while time lasts, and a
lower bound. The current layout and what other systems would do with it are always among the candidates.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from jobs.core.layout.actions import Action, action_of
from jobs.core.layout.anytime import AnytimeSearch, Candidate
from jobs.core.layout.baselines import Baseline, baselines, rerouting
from jobs.core.layout.bounds import ClusterBound
from jobs.core.layout.climbing import Climber
from jobs.core.layout.costs import iteration_time, uses_dead_device, violation
from jobs.core.layout.exact import ExactSearch
from jobs.core.layout.feasibility import check_feasible, no_room
from jobs.core.layout.fixed import FixedOrder
from jobs.core.layout.grouping import TooLarge
from jobs.core.layout.instance import Instance, Layout
from jobs.core.layout.joint import JointSearch
from jobs.core.layout.pipelines import OutOfTime
from jobs.core.layout.reading import check_layout
from jobs.core.layout.realise import realise
from jobs.core.layout.settle import settle
from jobs.core.layout.work import Work

SAME = 1e-9  # relative difference below which two times are equal
ROUNDING = 1e-11
SEARCH_PART = 0.75  # of the time limit; the rest is for the bound and for writing the plan down
DRAFT_PART = 0.4
OPEN_DRAFT_PART = 0.15  # where the number of replicas is open, which drafts find less well
CLIMB_PART = 0.35
BOUND_PART = 0.9
LEAST_SEARCH_S = 10.0
STARTS = 4  # plans from which the search climbs


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for an instance, how good it is, and what else was considered."""

    layout: Layout
    time: float
    current_time: float | None
    lower_bound: float
    optimal: bool
    action: Action | None
    alternatives: tuple[Baseline, ...]
    warnings: tuple[str, ...]
    first_plan_s: float
    planning_s: float

    @property
    def gap(self) -> float:
        """How much slower than the lower bound the plan is at most."""
        if self.optimal or self.lower_bound == self.time:
            return 0.0
        return self.time / self.lower_bound - 1 if self.lower_bound > 0 else math.inf


def make_plan(instance: Instance, clock: Callable[[], float]) -> Plan:
    """Plan an instance; `clock` returns seconds and rises.

    Raises NoFeasiblePlan with its cause, or MalformedInstance if `current` cannot be running. The answer
    depends on the clock only where the time limit ends the search before it is complete.
    """
    check_feasible(instance)
    if instance.current is not None:
        check_layout(instance, instance.current, "current")
    return _Planner(instance, clock).plan()


class _Planner:
    def __init__(self, instance: Instance, clock: Callable[[], float]) -> None:
        self.instance = instance
        self.clock = clock
        self.started = clock()
        self.search_ends = self.started + SEARCH_PART * instance.time_limit_s
        # Without any plan yet a short time limit is stretched.
        self.gives_up = self.started + max(instance.time_limit_s, LEAST_SEARCH_S)
        self.work = Work(instance)
        self.anytime = AnytimeSearch(self.work, self._time_left)
        self.fixed = FixedOrder(self.work, self.anytime.splits, self._time_left)
        self.best: Candidate | None = None
        self.starts: list[Candidate] = []
        self.first_plan_s = 0.0
        self.warnings: list[str] = []

    def _time_left(self) -> bool:
        now = self.clock()
        return now < self.search_ends or (self.best is None and now < self.gives_up)

    def _report(self, candidate: Candidate) -> None:
        if self.best is None:
            self.first_plan_s = self.clock() - self.started
        self.starts.append(candidate)
        if self.best is None or candidate.time < self.best.time * (1 - ROUNDING):
            self.best = candidate

    def plan(self) -> Plan:
        current_time, keepable = self._current()
        part = DRAFT_PART if self.instance.replicas is not None else OPEN_DRAFT_PART
        drafts_end = self.started + part * self.instance.time_limit_s
        others = []
        for other in baselines(self.instance, self.fixed):
            others.append(other)
            if other.layout is not None and other.time is not None and self._legal(other.layout):
                self._report(Candidate(other.time, other.layout))
        self.anytime.run(self._report, lambda: self.clock() < drafts_end or self.best is None)
        proven, exact_bound = self._search_exactly()
        if self.best is None:
            raise no_room(self.instance, proven)
        if not proven:
            self._improve()
        if self.instance.current is not None:
            others.append(rerouting(self.instance, self.instance.current))
        layout, time = self._gentlest(others, keepable, current_time)
        bound = time
        if not proven:
            bound = min(time, max(exact_bound(), ClusterBound(self.work, time).lower_bound()))
        if not proven and bound >= time * (1 - 2 * SAME):
            proven, bound = True, time
        return Plan(
            layout=layout,
            time=time,
            current_time=current_time,
            lower_bound=bound,
            optimal=proven,
            action=action_of(self.instance, layout),
            alternatives=tuple(others),
            warnings=tuple(self.warnings),
            first_plan_s=self.first_plan_s,
            planning_s=self.clock() - self.started,
        )

    def _improve(self) -> None:
        """Climb for a while, choose whole replicas together, and climb from what that finds.

        Where the number of replicas is open, they are chosen together at once.
        """
        assert self.best is not None
        replicas = self.instance.replicas or len(self.best.layout.replicas)
        whole = self.search_ends
        try:
            search = JointSearch(self.anytime, replicas, lambda: whole - self.clock())
        except TooLarge:
            self._climb()
            return
        if self.instance.replicas is not None:  # climbing keeps their number
            self.search_ends = self.started + CLIMB_PART * self.instance.time_limit_s
            self._climb()
            self.search_ends = whole
        for candidate in search.improve(self.best.time):
            self._report(candidate)
        self._climb()

    def _climb(self) -> None:
        """Climb from the best plans of different kinds, by either estimate, and from what that finds."""
        for start in sorted(self.starts, key=lambda candidate: candidate.time)[:STARTS]:
            for estimate in (self.anytime.smooth, self.anytime.estimate):
                for candidate in Climber(self.anytime, estimate).climb(start):
                    self._report(candidate)
                    if candidate.time < start.time:
                        start = candidate

    def _current(self) -> tuple[float | None, bool]:
        """Time of the current layout, and whether it may be kept."""
        current = self.instance.current
        if current is None or uses_dead_device(self.instance, current):
            return None, False
        broken = violation(self.instance, current)
        if broken is not None:
            self.warnings.append(f"current cannot be kept: {broken}")
        return iteration_time(self.instance, current), broken is None

    def _legal(self, layout: Layout) -> bool:
        dead = uses_dead_device(self.instance, layout)
        return not dead and violation(self.instance, layout) is None

    def _search_exactly(self) -> tuple[bool, Callable[[], float]]:
        """Search for a better plan with proof.

        Returns whether the best known is now proven optimal, and a lower bound to ask for if it is not.
        """
        try:
            search = ExactSearch(self.work, self._time_left)
        except TooLarge:
            return False, lambda: 0.0
        proven = True
        try:
            search.improve(self.best.time if self.best else math.inf)
        except OutOfTime:
            proven = False
        if search.best is not None:
            layout = realise(search, search.best, self.instance)
            self._report(Candidate(iteration_time(self.instance, layout), layout))

        def bound() -> float:
            ends = self.started + BOUND_PART * self.instance.time_limit_s
            return search.bound(0.0, self.best.time if self.best else math.inf, lambda: self.clock() < ends)

        return proven, bound

    def _gentlest(
        self, others: list[Baseline], keepable: bool, current_time: float | None
    ) -> tuple[Layout, float]:
        """Of the plans as fast as the best, the one that changes least."""
        assert self.best is not None
        if keepable and current_time is not None and current_time <= self.best.time * (1 + SAME):
            assert self.instance.current is not None
            return self.instance.current, current_time
        if self.instance.current is None:
            return self.best.layout, self.best.time
        ranks = {action: rank for rank, action in enumerate(Action)}
        close = [
            (ranks[action_of(self.instance, other.layout) or Action.KEEP], index, other.layout, other.time)
            for index, other in enumerate(others)
            if other.layout is not None
            and other.time is not None
            and other.time <= self.best.time * (1 + ROUNDING)
            and self._legal(other.layout)
        ]
        for index, layout in enumerate((settle(self.instance, self.best.layout), self.best.layout)):
            rank = ranks[action_of(self.instance, layout) or Action.KEEP]
            close.append((rank, len(others) + index, layout, self.best.time))
        _, _, layout, time = min(close, key=lambda row: row[:2])
        return layout, time
