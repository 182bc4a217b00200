"""Exact event simulation of a schedule: when every chunk starts and ends, and where the ranks wait.

A forward needs the forward of the previous virtual stage; a backward needs its own forward and the
backward of the next virtual stage; a weight gradient needs its own backward. What crosses from one rank to
another arrives `transfer_s` later. Each rank runs its list in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jobs.core.errors import ImpossibleSchedule
from jobs.core.pipeline.instructions import Chunk, Kind, Schedule


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds of one micro-batch per virtual stage.

    `backward_s` is the whole backward pass, or the input gradient alone for a schedule that splits it;
    only then is `weight_s` used.
    """

    forward_s: Sequence[float]
    backward_s: Sequence[float]
    weight_s: Sequence[float] = ()

    def of(self, kind: Kind) -> Sequence[float]:
        """Seconds per virtual stage of one kind of chunk."""
        if kind is Kind.FORWARD:
            return self.forward_s
        return self.backward_s if kind is Kind.BACKWARD else self.weight_s


class Slot(NamedTuple):
    """A chunk of work and when it ran."""

    chunk: Chunk
    start: float
    end: float


class Bubble(NamedTuple):
    """An interval in which a rank waits.

    `name` is `fill` before its first chunk, `drain` after its last, `stall` in between; `before` is the chunk
    that ends the wait.
    """

    name: str
    start: float
    end: float
    before: Chunk | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """What one pipeline does in one iteration, per rank."""

    makespan: float
    slots: tuple[tuple[Slot, ...], ...]

    def busy_s(self, rank: int) -> float:
        """Seconds a rank computes."""
        return sum(slot.end - slot.start for slot in self.slots[rank])

    def bubbles(self, rank: int) -> list[Bubble]:
        """The rank's idle intervals from the start of the iteration to the makespan, in order."""
        found, clock = [], 0.0
        for index, slot in enumerate(self.slots[rank]):
            if slot.start > clock:
                found.append(Bubble("stall" if index else "fill", clock, slot.start, slot.chunk))
            clock = slot.end
        if self.makespan > clock:
            found.append(Bubble("drain", clock, self.makespan, None))
        return found

    def span_s(self, rank: int) -> float:
        """Seconds from the start of the rank's first chunk to the end of its last."""
        return self.slots[rank][-1].end - self.slots[rank][0].start


def simulate(schedule: Schedule, durations: Durations, transfer_s: float = 0.0) -> Timeline:
    """Run a schedule; raises ImpossibleSchedule if durations are missing or ranks wait for each other."""
    _check(schedule, durations)
    ends: dict[tuple[Kind, int, int], float] = {}
    clocks = [0.0] * schedule.stages
    cursors = [0] * schedule.stages
    slots: list[list[Slot]] = [[] for _ in schedule.ranks]
    ready = list(range(schedule.stages))
    waiting: dict[tuple[Kind, int, int], int] = {}
    while ready:
        rank = ready.pop()
        order = schedule.ranks[rank]
        while cursors[rank] < len(order):
            chunk = order[cursors[rank]]
            start: float = clocks[rank]
            missing = None
            for key, delay in _needs(schedule, rank, chunk, transfer_s):
                if key not in ends:
                    missing = key
                    break
                start = max(start, ends[key] + delay)
            if missing is not None:
                waiting[missing] = rank
                break
            stage = schedule.virtual_stage(rank, chunk.model_chunk)
            end = start + durations.of(chunk.kind)[stage]
            slots[rank].append(Slot(chunk, start, end))
            clocks[rank] = end
            cursors[rank] += 1
            done = (chunk.kind, chunk.microbatch, stage)
            ends[done] = end
            if done in waiting:
                ready.append(waiting.pop(done))
    if any(cursor < len(order) for cursor, order in zip(cursors, schedule.ranks, strict=True)):
        raise ImpossibleSchedule(f"schedule {schedule.name!r}: its ranks wait for each other for ever")
    return Timeline(max(clocks), tuple(tuple(row) for row in slots))


def _needs(
    schedule: Schedule, rank: int, chunk: Chunk, transfer_s: float
) -> list[tuple[tuple[Kind, int, int], float]]:
    stage = schedule.virtual_stage(rank, chunk.model_chunk)
    needs = []
    if chunk.kind is Kind.WEIGHT:
        needs.append(((Kind.BACKWARD, chunk.microbatch, stage), 0.0))
    if chunk.kind is Kind.BACKWARD:
        needs.append(((Kind.FORWARD, chunk.microbatch, stage), 0.0))
    peer = schedule.receives_from(rank, chunk)
    if peer is not None:
        delay = 0.0 if peer[0] == rank else transfer_s
        needs.append(((chunk.kind, chunk.microbatch, schedule.virtual_stage(*peer)), delay))
    return needs


def _check(schedule: Schedule, durations: Durations) -> None:
    kinds = [Kind.FORWARD, Kind.BACKWARD] + ([Kind.WEIGHT] if schedule.splits_backward else [])
    for kind in kinds:
        given = len(durations.of(kind))
        if given != schedule.virtual_stages:
            raise ImpossibleSchedule(
                f"durations of {kind}: {given} given for {schedule.virtual_stages} virtual stages"
            )
