"""Streams that slow each other down: a fluid simulation of an issue order.

While the compute stream and at least one comm stream are busy, compute progresses at 1 / (1 + a) and every
running collective at 1 / (1 + b); alone they progress at 1.
"""

from collections import deque
from dataclasses import dataclass, field

from jobs.core.overlap.graph import Graph, Kind, Steps


@dataclass
class _Job:
    """A step on a stream; a collective also knows how many compute-stream steps were issued before it."""

    step: tuple[int, ...]
    remaining_s: float
    issued_after: int = 0
    started: bool = False

    @property
    def running(self) -> bool:
        """A wait that stalls has started but does no work."""
        return self.started and self.remaining_s > 0.0


@dataclass
class _Streams:
    graph: Graph
    compute: deque[_Job] = field(default_factory=deque)
    comm: list[deque[_Job]] = field(default_factory=list)
    retired: int = 0
    done: set[int] = field(default_factory=set)
    starts_s: list[float] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)


def slowed_times(graph: Graph, steps: Steps) -> tuple[list[float], list[float]]:
    """Start and end of each node."""
    streams = _load(graph, steps)
    now = 0.0
    while True:
        _settle(streams, now)
        compute = streams.compute[0] if streams.compute and streams.compute[0].running else None
        comms = [queue[0] for queue in streams.comm if queue and queue[0].running]
        if compute is None and not comms:
            return streams.starts_s, streams.ends_s
        both = compute is not None and bool(comms)
        slow_compute = 1.0 + graph.compute_slowdown if both else 1.0
        slow_comm = 1.0 + graph.comm_slowdown if both else 1.0
        lefts = [job.remaining_s * slow_comm for job in comms]
        if compute is not None:
            lefts.append(compute.remaining_s * slow_compute)
        passed = min(lefts)
        now += passed
        for job, left in zip(comms, lefts, strict=False):
            job.remaining_s = 0.0 if left <= passed else job.remaining_s - passed / slow_comm
        if compute is not None:
            ends = lefts[-1] <= passed
            compute.remaining_s = 0.0 if ends else compute.remaining_s - passed / slow_compute


def _load(graph: Graph, steps: Steps) -> _Streams:
    count = len(graph.nodes)
    streams = _Streams(
        graph, comm=[deque() for _ in graph.groups], starts_s=[0.0] * count, ends_s=[0.0] * count
    )
    for step in steps:
        if graph.nodes[step[0]].kind is Kind.COMM:
            job = _Job(step, graph.bucket_time_s(step), len(streams.compute))
            streams.comm[graph.group_of[step[0]]].append(job)
        else:
            is_compute = graph.nodes[step[0]].kind is Kind.COMPUTE
            streams.compute.append(_Job(step, graph.bucket_time_s(step) if is_compute else 0.0))
    return streams


def _settle(streams: _Streams, now: float) -> None:
    """Retire what has ended and start what may start, until nothing changes at this moment."""
    moved = True
    while moved:
        moved = _turn_compute(streams, now)
        for queue in streams.comm:
            moved |= _turn_comm(streams, queue, now)


def _turn_compute(streams: _Streams, now: float) -> bool:
    moved = False
    while streams.compute:
        job = streams.compute[0]
        if not job.started:
            job.started = True
            _note(streams.starts_s, job, now)
        if any(comm not in streams.done for comm in streams.graph.waits_for[job.step[0]]):
            return moved
        if job.remaining_s > 0.0:
            return moved
        _note(streams.ends_s, streams.compute.popleft(), now)
        streams.retired += 1
        moved = True
    return moved


def _turn_comm(streams: _Streams, queue: deque[_Job], now: float) -> bool:
    moved = False
    while queue and streams.retired >= queue[0].issued_after:
        job = queue[0]
        if not job.started:
            job.started = True
            _note(streams.starts_s, job, now)
        if job.remaining_s > 0.0:
            return moved
        streams.done.update(job.step)
        _note(streams.ends_s, queue.popleft(), now)
        moved = True
    return moved


def _note(times: list[float], job: _Job, now: float) -> None:
    for member in job.step:
        times[member] = now
