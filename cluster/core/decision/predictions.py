"""When a waiting job will start: the queue played forward on counts, three times.

The early, middle and late answers take the running and waiting jobs' low, middle and high run times.
Placement, preemption and jobs that are not submitted yet are not in it; that is why it is an interval.
"""

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.core.decision.ordering import UNKNOWN_RUNTIME_S
from cluster.core.decision.round import Round
from cluster.core.decision.state import JobView
from cluster.core.requests import total_milli
from cluster.core.workload import FloatMatrix, IntColumn

# Without a history: most jobs end long before their limit, none after it.
LOW_SHARE, MIDDLE_SHARE = 0.1, 0.5


@dataclass(frozen=True, slots=True)
class Prediction:
    """Absolute start times; None where nothing bounds somebody ahead."""

    early_s: float | None
    middle_s: float | None
    late_s: float | None


def runtime_interval(job: JobView, now: float) -> tuple[float, float, float]:
    """Return (low, middle, high) of a job's remaining run time; high is infinite without a limit."""
    ran = max(0.0, now - job.started_s) if job.running and job.started_s is not None else 0.0
    if job.expected_s is not None:
        low, middle, high = job.expected_s
        return max(0.0, low), max(0.0, middle), max(0.0, high)
    if job.limit_s is None:
        return 0.0, UNKNOWN_RUNTIME_S, math.inf
    left = max(0.0, job.limit_s - ran)
    return left * LOW_SHARE, left * MIDDLE_SHARE, left


def _intervals(jobs: Sequence[JobView], now: float) -> FloatMatrix:
    """Return `runtime_interval` of many jobs (J, 3)."""
    limit_s = np.array([math.inf if job.limit_s is None else job.limit_s for job in jobs])
    ran_s = np.array(
        [now - job.started_s if job.running and job.started_s is not None else 0.0 for job in jobs]
    )
    left_s = np.maximum(limit_s - np.maximum(ran_s, 0.0), 0.0)
    found = np.stack([left_s * LOW_SHARE, left_s * MIDDLE_SHARE, left_s], axis=-1)
    found[np.isinf(limit_s)] = (0.0, UNKNOWN_RUNTIME_S, math.inf)
    for row, job in enumerate(jobs):
        if job.expected_s is not None:
            found[row] = np.maximum(job.expected_s, 0.0)
    return found


def predict_starts(
    round_: Round, order: Sequence[JobView], started: Sequence[JobView]
) -> dict[str, Prediction]:
    """Return a prediction for every job of the order that still waits."""
    holdings = _Holdings(
        round_, [job for job in [*round_.running.values(), *started] if job.id in round_.kind_of]
    )
    wishes = [_wish(round_, job) for job in order]
    plays = [_Play(round_, holdings, which).run(wishes) for which in range(3)]
    predictions = {}
    for job in order:
        times = [play.get(job.id, math.inf) for play in plays]
        # A play is a schedule, and schedules have anomalies: a shorter job ahead can delay a later one.
        times = [min(times[0], times[1]), times[1], max(times[1], times[2])]
        predictions[job.id] = Prediction(*(time if math.isfinite(time) else None for time in times))
    return predictions


class _Holdings:
    """What jobs hold now and when it comes back, by kind, and by team where a ceiling could matter.

    A team that may have everything of a kind is held up by missing devices only, so nobody counts for it.
    """

    def __init__(self, round_: Round, jobs: Sequence[JobView]) -> None:
        now = round_.now
        self.ends_s = _intervals(jobs, now) + now
        self.milli = np.array([round_.milli_of[job.id] for job in jobs], dtype=np.int64)
        self.ceiling: dict[tuple[str, str], int] = {}
        by_kind: dict[str, list[int]] = {}
        by_team: dict[tuple[str, str], list[int]] = {}
        for row, job in enumerate(jobs):
            kind = round_.kind_of[job.id]
            by_kind.setdefault(kind, []).append(row)
            by_team.setdefault((job.team, kind), []).append(row)
        self.by_kind = {kind: np.array(rows) for kind, rows in by_kind.items()}
        self.by_team = {
            key: np.array(rows) for key, rows in by_team.items() if self.limit(round_, *key) is not None
        }

    def limit(self, round_: Round, team: str, kind: str) -> int | None:
        """Return a team's ceiling of a kind, None where it is all there is."""
        key = (team, kind)
        if key not in self.ceiling:
            self.ceiling[key] = round_.book.ceiling(team, kind)
        found = self.ceiling[key]
        return None if found >= round_.book.capacity.get(kind, 0) else found

    def ends(self, rows: IntColumn, which: int) -> list[tuple[float, int]]:
        """Return (end, thousandths) of some holdings in time order."""
        times = self.ends_s[rows, which]
        order = np.argsort(times, kind="stable")
        return list(zip(times[order].tolist(), self.milli[rows[order]].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a play has to know of a waiting job."""

    job_id: str
    team: str
    milli: int
    kinds: tuple[str, ...]
    runtime_s: tuple[float, float, float]


def _wish(round_: Round, job: JobView) -> _Wish:
    kinds = tuple(kind for kind, _ in round_.options(job))
    return _Wish(job.id, job.team, total_milli(job.tasks), kinds, runtime_interval(job, round_.now))


class _Ends:
    """Ends of jobs in time order with the thousandths each gives back."""

    def __init__(self) -> None:
        self.entries: list[tuple[float, int]] = []
        self.passed = 0

    def add(self, end_s: float, milli: int) -> None:
        insort(self.entries, (end_s, milli), lo=self.passed)

    def when(self, missing: int) -> float:
        """Return when so much more has come back."""
        for position in range(self.passed, len(self.entries)):
            missing -= self.entries[position][1]
            if missing <= 0:
                return self.entries[position][0]
        return math.inf

    def pass_by(self, time: float) -> int:
        """Return what has come back by a time and was not yet counted."""
        back = 0
        while self.passed < len(self.entries) and self.entries[self.passed][0] <= time:
            back += self.entries[self.passed][1]
            self.passed += 1
        return back


class _Play:
    """The queue started in order on free counts per kind and per team."""

    def __init__(self, round_: Round, holdings: _Holdings, which: int) -> None:
        self.round, self.holdings, self.which = round_, holdings, which
        self.clock = dict.fromkeys(round_.pool.masks, round_.now)
        self.free = {kind: round_.pool.free_milli(mask) for kind, mask in round_.pool.masks.items()}
        self.ends = {kind: _Ends() for kind in self.free}
        self.team_ends: dict[tuple[str, str], _Ends] = {}
        self.team_used: dict[tuple[str, str], int] = {}
        self.limits: dict[tuple[str, str], int | None] = {}
        for kind, rows in holdings.by_kind.items():
            self.ends[kind].entries = holdings.ends(rows, which)
        for key, rows in holdings.by_team.items():
            self.team_ends[key] = _Ends()
            self.team_ends[key].entries = holdings.ends(rows, which)
            self.team_used[key] = int(holdings.milli[rows].sum())

    def run(self, wishes: Sequence[_Wish]) -> dict[str, float]:
        """Return when each job starts."""
        return {wish.job_id: self._start(wish) for wish in wishes}

    def _start(self, wish: _Wish) -> float:
        start_s, kind = math.inf, ""
        for other in wish.kinds:
            ready_s = self._ready_s(wish, other)
            if ready_s < start_s or (ready_s == start_s and other < kind):
                start_s, kind = ready_s, other
        if start_s == math.inf:
            return start_s
        needed, ends = wish.milli, self.ends[kind]
        self.clock[kind] = start_s
        self.free[kind] += ends.pass_by(start_s) - needed
        end_s = start_s + wish.runtime_s[self.which]
        ends.add(end_s, needed)
        key = (wish.team, kind)
        if self.limit(key) is not None:
            ends = self.team_ends.setdefault(key, _Ends())
            self.team_used[key] = self.team_used.get(key, 0) + needed - ends.pass_by(start_s)
            ends.add(end_s, needed)
        return start_s

    def limit(self, key: tuple[str, str]) -> int | None:
        """Return a team's ceiling of a kind, None where it is all there is."""
        if key not in self.limits:
            self.limits[key] = self.holdings.limit(self.round, *key)
        return self.limits[key]

    def _ready_s(self, wish: _Wish, kind: str) -> float:
        """Return when the devices and the team's own ceiling both leave room."""
        clock_s = self.clock[kind]
        missing = wish.milli - self.free[kind]
        ready = clock_s if missing <= 0 else self.ends[kind].when(missing)
        key = (wish.team, kind)
        limit = self.limit(key)
        if limit is not None:
            over = self.team_used.get(key, 0) + wish.milli - limit
            if over > 0:
                ready = max(ready, self.team_ends[key].when(over) if key in self.team_ends else math.inf)
        return ready if ready > clock_s else clock_s
