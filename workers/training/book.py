"""Iterations put together from what their ranks report; constant memory, however long the run."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
# Iterations over which costs and speeds are taken, and those that say how fast a layout is when all is well.
RECENT = 20
BASELINE_FROM, BASELINE_TO = 3, 30
# Since something went wrong so many iterations are enough to take costs from.
FEW = 3
# A rank whose time is longer than its work by this factor rests: something else than its device holds it up.
RESTS_FROM = 1.1
# Iterations with more chunks than this keep no raw ones.
MOST_RAW_CHUNKS = 4000


@dataclass(frozen=True)
class Seat:
    """Where a rank works."""

    replica: int
    stage: int
    group: int


def seats_of(layout: Mapping[str, Any]) -> dict[int, Seat]:
    """Return the seat of every rank that a layout document puts to work."""
    return {
        int(device[1:]): Seat(i, j, len(stage["devices"]))
        for i, replica in enumerate(layout["replicas"])
        for j, stage in enumerate(replica["stages"])
        for device in stage["devices"]
    }


@dataclass(frozen=True)
class RankStep:
    """One rank's part of an iteration; seconds of its own work, waiting left out."""

    rank: int
    seat: Seat
    seconds: float
    own_s: float
    forward_s: float
    backward_s: float
    rest: float
    microbatches: int
    tokens: int
    sum_sq: int
    raw: dict[str, Any]


@dataclass(frozen=True)
class Step:
    """A committed iteration."""

    step: int
    epoch: int
    seconds: float
    loss: float | None
    tokens: int
    ranks: list[RankStep]


class _Cost(NamedTuple):
    """What one micro-batch took a rank, and how long it rested, as a multiple of its work."""

    forward_s: float
    backward_s: float
    rest: float


@dataclass
class Book:
    """The iterations of one layout after the other.

    `shares_core` says that ranks share a core: then their own time is processor time, lengthened as much as
    an injected fault lengthened the wall's, since time on the wall would contain the others' work.

    `since` is the step from which something was wrong, if anything is: costs and times are those since then.
    """

    shares_core: bool
    seats: dict[int, Seat] = field(default_factory=dict)
    last: int = 0
    in_layout: int = 0
    expected_s: float | None = None
    since: int | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)
    _waiting: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)
    _seconds: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT))
    _calm: list[float] = field(default_factory=list)
    _was_calm: dict[str, Any] | None = None
    _costs: dict[int, deque[tuple[int, _Cost]]] = field(default_factory=dict)

    def begin(self, layout: Mapping[str, Any], step: int, *, expected_s: float | None = None) -> None:
        """Go on in a layout after this committed step; what another one measured is forgotten."""
        self.seats, self.layout, self.since = seats_of(layout), layout, None
        self.last, self.in_layout, self.expected_s = step, 0, expected_s
        self._waiting = {number: ranks for number, ranks in self._waiting.items() if number > step}
        self._seconds.clear()
        self._calm.clear()
        self._costs.clear()

    def add(self, event: Mapping[str, Any]) -> None:
        """Take one rank's report of an iteration."""
        if event["step"] > self.last and event["plan_rank"] in self.seats:
            self._waiting.setdefault(event["step"], {})[event["plan_rank"]] = dict(event)

    def take(self, *, calm: bool, flush: bool = False) -> list[Step]:
        """Return the iterations that are complete, in order; `calm` says that nothing is known to be wrong.

        A rank reports what is committed everywhere: one that died before its report holds nothing up once a
        later iteration is complete, or with `flush`.
        """
        full = [number for number, ranks in self._waiting.items() if len(ranks) == len(self.seats)]
        until = max(self._waiting, default=0) if flush else max(full, default=0)
        found = []
        for number in sorted(number for number in self._waiting if number <= until):
            step = self._put_together(number, self._waiting.pop(number))
            self._learn(step, calm)
            found.append(step)
            self.last = number
        return found

    def _put_together(self, number: int, events: dict[int, dict[str, Any]]) -> Step:
        ranks = [self._rank_step(rank, event) for rank, event in sorted(events.items())]
        losses = [event["loss"] for event in events.values() if event.get("loss") is not None]
        first_stage: dict[int, int] = {}
        for row in ranks:
            if row.seat.stage == 0:
                first_stage[row.seat.replica] = row.tokens
        return Step(
            step=number,
            epoch=max(event["epoch"] for event in events.values()),
            # Clocks of two machines say nothing about each other: durations only.
            seconds=max(row.seconds for row in ranks),
            loss=losses[0] if losses else None,
            tokens=sum(first_stage.values()),
            ranks=ranks,
        )

    def _rank_step(self, rank: int, event: dict[str, Any]) -> RankStep:
        chunks = event["chunks"]
        seat = self.seats[rank]
        forward = sum(self._own_s(chunk) for chunk in chunks if chunk["type"] == "F")
        backward = sum(self._own_s(chunk) for chunk in chunks if chunk["type"] != "F")
        worked = sum(self._worked_s(chunk) for chunk in chunks)
        forwards = [chunk for chunk in chunks if chunk["type"] == "F"]
        count = max(1, len({chunk["microbatch"] for chunk in forwards}))
        seconds = event["ended_s"] - event["started_s"]
        raw = {"rank": rank, "replica": seat.replica, "stage": seat.stage, "seconds": seconds}
        if len(chunks) * len(self.seats) <= MOST_RAW_CHUNKS:
            raw |= raw_chunks(event)
        raw["own_s"] = forward + backward
        return RankStep(
            rank=rank,
            seat=seat,
            seconds=seconds,
            own_s=forward + backward,
            forward_s=forward / count,
            backward_s=backward / count,
            rest=(forward + backward) / worked - 1 if worked > 0 else 0.0,
            microbatches=count,
            tokens=sum(chunk["tokens"] for chunk in forwards),
            sum_sq=sum(chunk["sum_squared_lengths"] for chunk in forwards),
            raw=raw,
        )

    def _own_s(self, chunk: Mapping[str, Any]) -> float:
        if not self.shares_core:
            return float(chunk["seconds"])
        busy_s = self._busy_s(chunk)
        return float(chunk["cpu_seconds"]) * (float(chunk["seconds"]) / busy_s if busy_s > 0 else 1.0)

    def _worked_s(self, chunk: Mapping[str, Any]) -> float:
        return float(chunk["cpu_seconds"]) if self.shares_core else self._busy_s(chunk)

    @staticmethod
    def _busy_s(chunk: Mapping[str, Any]) -> float:
        """Time on the wall without what a fault added."""
        return float(chunk["seconds"]) - float(chunk.get("throttled_seconds", 0.0))

    def _learn(self, step: Step, calm: bool) -> None:
        self.in_layout += 1
        self._seconds.append((step.step, step.seconds))
        for row in step.ranks:
            self._costs.setdefault(row.rank, deque(maxlen=RECENT)).append(
                (step.step, _Cost(row.forward_s, row.backward_s, row.rest))
            )
        if calm and BASELINE_FROM <= self.in_layout <= BASELINE_TO:
            self._calm.append(step.seconds)
            if len(self._calm) >= BASELINE_FROM:
                self.expected_s = median(self._calm)
                self._was_calm = {"layout": dict(self.layout), "iteration_s": self.expected_s}

    @property
    def iteration_s(self) -> float | None:
        """The median of the latest iterations, of those since something was wrong where enough are."""
        seconds = self._recent(self._seconds)
        return median(seconds) if seconds else None

    def costs(self) -> dict[str, Any]:
        """Return what one micro-batch takes each rank, as medians of the latest iterations.

        With it: `resting`, the ranks that something else than their device holds up; `spread`, the 10th and
        90th percentile of iteration times over their median; `calm`, the layout that last ran with nothing
        wrong.
        """
        rows = {rank: self._recent(kept) for rank, kept in self._costs.items() if kept}
        seconds = sorted(self._recent(self._seconds))
        usual = median(seconds) if seconds else 0.0
        tenth = len(seconds) // 10
        return {
            "ranks": {
                str(rank): {
                    "forward_s": median(row.forward_s for row in each),
                    "backward_s": median(row.backward_s for row in each),
                }
                for rank, each in rows.items()
            },
            "iterations": len(self._seconds),
            "resting": [rank for rank, each in rows.items() if median(r.rest for r in each) > RESTS_FROM - 1],
            "spread": [seconds[tenth] / usual, seconds[-1 - tenth] / usual] if usual > 0 else [1.0, 1.0],
            "calm": self._was_calm,
        }

    def _recent(self, rows: deque[tuple[int, T]]) -> list[T]:
        since = [row for step, row in rows if self.since is not None and step >= self.since]
        return since if len(since) >= FEW else [row for _, row in rows]


def raw_chunks(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rank's chunks in order and its waits, each before the chunk of its slot; seconds."""
    chunks = [
        {
            "type": chunk["type"],
            "microbatch": chunk["microbatch"],
            "stage": chunk["stage"],
            "seconds": round(chunk["seconds"], 6),
        }
        for chunk in event["chunks"]
    ]
    bubbles = [
        {"slot": bubble["slot"], "seconds": round(bubble["seconds"], 6)}
        for bubble in event.get("bubbles", [])
    ]
    return {"chunks": chunks, "bubbles": bubbles}
