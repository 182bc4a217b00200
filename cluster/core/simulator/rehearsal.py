"""The live decision played forward: the same `decide`, with simulated devices and a clock of its own.

What the operator previews is what the coordinator would do: quotas, classes, preemption and reservations
are in it. Slower than the trace simulations, made for queues of hundreds.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster.core.decision.decide import decide
from cluster.core.decision.outcome import Decision
from cluster.core.decision.sharing import asks_whole
from cluster.core.decision.state import ClusterState, JobView
from cluster.core.fairness.usage import advance_usage
from cluster.core.policies.interface import Policy
from cluster.core.requests import MILLI

TICK_S = 60.0
IDLE_TICKS = 10
Watch = Callable[[ClusterState, Decision, ClusterState], None]


@dataclass(slots=True)
class Rehearsal:
    """What happened.

    Attributes:
        starts_s, ends_s: first start and end by job.
        evictions: stops by job.
        stranded: jobs that could not start with nothing left to wait for, with the reason.
        device_s: device-seconds by (team, kind).
    """

    starts_s: dict[str, float] = field(default_factory=dict)
    ends_s: dict[str, float] = field(default_factory=dict)
    evictions: dict[str, int] = field(default_factory=dict)
    stranded: dict[str, str] = field(default_factory=dict)
    device_s: dict[tuple[str, str], float] = field(default_factory=dict)
    decisions: int = 0


def rehearse(
    state: ClusterState,
    policy: Policy,
    runtimes_s: Mapping[str, float],
    *,
    now: float = 0.0,
    arrivals: Sequence[JobView] = (),
    until_s: float = math.inf,
    tick_s: float = TICK_S,
    watch: Watch | None = None,
) -> Rehearsal:
    """Play a queue forward until nothing is left or `until_s`.

    Args:
        runtimes_s: whole run time of each job, what it has already run included.
        arrivals: jobs that are submitted later.
        watch: called with the state before and after each decision.
    """
    play = _Play(state, policy, runtimes_s, now, arrivals, tick_s, watch)
    while play.now <= until_s and play.step():
        pass
    return play.outcome


def pace_of_view(job: JobView, kinds: Mapping[str, str]) -> float:
    """Return how much of its work a job does in a second where it is; `kinds` tells each node's."""
    if not job.placement:
        return 1.0
    pace = dict(job.speeds).get(kinds.get(job.placement[0].node, ""), 1.0)
    shared = job.keeps and asks_whole(job) and job.placement[0].milli < MILLI
    return pace * job.keeps if shared else pace


def _ran_s(job: JobView, now: float) -> float:
    return max(0.0, now - job.started_s) if job.started_s is not None else 0.0


class _Play:
    def __init__(
        self,
        state: ClusterState,
        policy: Policy,
        runtimes_s: Mapping[str, float],
        now: float,
        arrivals: Sequence[JobView],
        tick_s: float,
        watch: Watch | None,
    ) -> None:
        self.state, self.policy, self.runtimes = state, policy, runtimes_s
        self.now, self.tick_s, self.watch = now, tick_s, watch
        self.jobs = {job.id: job for job in state.jobs}
        self.coming = sorted(arrivals, key=lambda job: (job.submitted_s, job.id), reverse=True)
        self.usage = dict(state.usage)
        self.kinds = {node.name: node.kind for node in state.nodes}
        self.outcome = Rehearsal()
        # What of its work each running job had done, and when that was counted.
        self.done = {job.id: job.executed_s + _ran_s(job, now) for job in state.jobs if job.running}
        self.counted = dict.fromkeys(self.done, now)

    def step(self) -> bool:
        """Take in arrivals, decide, apply, move on to the next event; false when nothing is left to do."""
        while self.coming and self.coming[-1].submitted_s <= self.now:
            job = self.coming.pop()
            self.jobs.setdefault(job.id, job)  # the same submission twice is one job
        before = replace(self.state, jobs=tuple(self.jobs.values()), usage=self.usage)
        decision = decide(before, self.policy, self.now, predict=False)
        self.outcome.decisions += 1
        self._apply(decision)
        if self.watch is not None:
            self.watch(before, decision, replace(before, jobs=tuple(self.jobs.values())))
        then = self._next_event_s(changed=bool(decision.starts or decision.preemptions))
        if then == math.inf:
            self.outcome.stranded.update({name: wait.reason for name, wait in decision.waits.items()})
            return False
        self._advance(then)
        return True

    def _apply(self, decision: Decision) -> None:
        for entry in decision.preemptions:
            job = self._progressed(self.jobs[entry.job_id])
            by_people = entry.cause in ("drain", "node_lost")
            evictions = job.evictions + (not by_people)
            self.jobs[job.id] = replace(job, running=False, started_s=None, placement=(), evictions=evictions)
            self.outcome.evictions[job.id] = self.outcome.evictions.get(job.id, 0) + 1
        for resize in decision.resized:
            job = self.jobs[resize.job_id]
            if job.running:
                self._count(job)
                slices = tuple(replace(piece, milli=resize.milli) for piece in job.placement)
                self.jobs[job.id] = replace(job, placement=slices)
        for start in decision.starts:
            job = self.jobs[start.job_id]
            self.jobs[job.id] = replace(job, running=True, started_s=self.now, placement=start.slices)
            self.done.setdefault(job.id, job.executed_s)
            self.counted[job.id] = self.now
            self.outcome.starts_s.setdefault(job.id, self.now)

    def _count(self, job: JobView) -> None:
        """Count what a running job has done; has to come before its devices change."""
        self.done[job.id] += self._pace(job) * (self.now - self.counted[job.id])
        self.counted[job.id] = self.now

    def _pace(self, job: JobView) -> float:
        return pace_of_view(job, self.kinds)

    def _progressed(self, job: JobView) -> JobView:
        self._count(job)
        ran = _ran_s(job, self.now)
        devices = sum(piece.milli for piece in job.placement) / MILLI
        expected = None
        if job.expected_s is not None:
            low, middle, high = (max(0.0, value - ran) for value in job.expected_s)
            expected = (low, middle, high)
        return replace(
            job,
            executed_s=job.executed_s + ran,
            attained_device_s=job.attained_device_s + ran * devices,
            expected_s=expected,
        )

    def _end_s(self, job: JobView) -> float:
        left_s = max(0.0, self.runtimes[job.id] - self.done[job.id]) / self._pace(job)
        return max(self.now, self.counted[job.id] + left_s)

    def _next_event_s(self, *, changed: bool) -> float:
        running = [job for job in self.jobs.values() if job.running]
        upcoming = self.coming[-1].submitted_s if self.coming else math.inf
        then = min([upcoming, *(self._end_s(job) for job in running)])
        if len(running) == len(self.jobs):
            return then
        if changed:
            return min(then, self.now + self.tick_s)
        # Nothing moved: wait, in whole ticks, until time itself can change the answer.
        edges = [edge for edge in self._edges_s(running) if edge > self.now]
        if running:
            edges.append(self.now + IDLE_TICKS * self.tick_s)
        if not edges:
            return then
        ticks = max(1, math.ceil((min(edges) - self.now) / self.tick_s))
        return min(then, self.now + ticks * self.tick_s)

    def _edges_s(self, running: Sequence[JobView]) -> Iterator[float]:
        """Yield when minimum run times end, waits pass the bound and reservations begin or end."""
        settings = self.state.settings
        for job in running:
            safe_s = settings.min_runtime_s if job.min_runtime_s is None else job.min_runtime_s
            yield (job.started_s or 0.0) + safe_s
        for job in self.jobs.values():
            if not job.running and not job.held:
                yield job.submitted_s + job.executed_s + settings.bounded_wait_s
        for entry in self.state.reservations:
            yield from (time for time in (entry.start_s, entry.end_s) if time < math.inf)

    def _advance(self, then: float) -> None:
        held: dict[str, float] = {}
        elapsed = then - self.now
        for job in self.jobs.values():
            if job.running and job.placement:
                devices = sum(piece.milli for piece in job.placement) / MILLI
                owner = f"{job.team}/{job.user}"
                held[owner] = held.get(owner, 0.0) + devices
                key = (job.team, self.kinds.get(job.placement[0].node, ""))
                self.outcome.device_s[key] = self.outcome.device_s.get(key, 0.0) + devices * elapsed
        self.usage = advance_usage(self.usage, held, elapsed)
        ends = {job.id: self._end_s(job) for job in self.jobs.values() if job.running}
        self.now = then
        for name, end_s in ends.items():
            if end_s <= then:
                self.outcome.ends_s[name] = end_s
                del self.jobs[name]
