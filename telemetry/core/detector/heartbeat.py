"""Heartbeats and progress: which ranks have stopped, and when the monitor itself must not be believed.

Ages are taken on the monitor's monotonic clock alone, so the hosts' clocks may say what they like. A rank is
stopped when neither a beat nor progress came for ten of its usual intervals and at least five seconds. When
more than half of the fleet goes silent at once, or the monitor's own clock jumped, it is the monitor that
was away: judgement waits until the ranks are heard again.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from telemetry.core.detector.ledger import Ledger
from telemetry.core.detector.verdicts import Evidence, Subject, Verdict, VerdictKind

INTERVALS, LEAST_S = 10, 5.0
REMEMBERED = 32
STOPPED, FAULT = VerdictKind.FAIL_STOP, VerdictKind.MONITOR_FAULT
MONITOR = Subject()


@dataclass
class Signs:
    """What is known of one rank: when it was heard, how often it usually is, how far it got."""

    heard_s: float
    progress: int | None = None
    beats: int = 1
    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @property
    def limit_s(self) -> float:
        """How long its silence may last."""
        return max(LEAST_S, INTERVALS * median(self.intervals)) if self.intervals else LEAST_S

    def hear(self, now_s: float) -> None:
        """Take a sign of life."""
        self.beats += 1
        if now_s > self.heard_s:
            self.intervals.append(now_s - self.heard_s)
            self.heard_s = now_s


class HeartbeatMonitor:
    """Follows the signs of life of all ranks; memory grows with ranks, not with time."""

    def __init__(self, ledger: Ledger, place: Callable[[int], Subject]) -> None:
        self.ledger = ledger
        self.place = place
        self.now_s = -math.inf
        self.signs: dict[int, Signs] = {}
        self.stopped: dict[int, Subject] = {}
        self.suspended: set[int] = set()
        self.backwards = 0
        self._gaps: deque[float] = deque(maxlen=REMEMBERED)
        self._jumped = False
        self._judged_s = -math.inf
        self._before = 0

    def beat(self, rank: int, received_s: float, progress: int | None) -> None:
        """Take a beat that the monitor received at this time of its clock."""
        self._advance(received_s)
        # Each second of beats is a tick too, judged before the beat that ends it is taken.
        if self.now_s - self._judged_s >= 1.0:
            self.tick(self.now_s, heard=rank)
        self._hear(rank)
        if progress is not None:
            self.signs[rank].progress = max(progress, self.signs[rank].progress or 0)

    def step(self, rank: int, step: int) -> None:
        """Take a step line, which is progress at the last clock reading, if there was one."""
        if math.isfinite(self.now_s):
            self._hear(rank)
            self.signs[rank].progress = max(step, self.signs[rank].progress or 0)

    def tick(self, now_s: float, heard: int | None = None) -> None:
        """Judge who is silent at this time; `heard` is a rank whose beat is just being taken."""
        self._advance(now_s)
        self._judged_s = self.now_s
        jumped, self._jumped = self._jumped, False
        judged = [rank for rank in self.signs if rank not in self.stopped and rank not in self.suspended]
        silent = [rank for rank in judged if self.now_s - self.signs[rank].heard_s > self.signs[rank].limit_s]
        if not silent:
            return
        many = len(silent) > 1 and 2 * len(silent) > len(self.signs)
        if jumped or many:
            self._suspend(silent, jumped)
            return
        for rank in silent:
            if rank != heard:
                self._stop(rank)

    def _advance(self, now_s: float) -> None:
        if now_s < self.now_s:
            self.backwards += 1
            return
        gap = now_s - self.now_s
        if math.isfinite(gap) and gap > 0:
            usual = median(self._gaps) if self._gaps else gap
            self._jumped = self._jumped or gap > max(LEAST_S, INTERVALS * usual)
            self._gaps.append(gap)
        self.now_s = now_s

    def _hear(self, rank: int) -> None:
        signs = self.signs.get(rank)
        if signs is None:
            self.signs[rank] = Signs(self.now_s)
            return
        subject = self.stopped.pop(rank, None)
        if subject is not None:
            self.ledger.clear(STOPPED, subject)
        if subject is not None or rank in self.suspended:
            # Its silence says nothing about how often it is usually heard.
            signs.heard_s = self.now_s
        signs.hear(self.now_s)
        if rank in self.suspended:
            self.suspended.discard(rank)
            self._resume()

    def _stop(self, rank: int) -> None:
        signs = self.signs[rank]
        subject = self.place(rank)
        self.stopped[rank] = subject
        age, limit = self.now_s - signs.heard_s, signs.limit_s
        furthest = self._furthest()
        evidence = [
            Evidence("silence_s", age, limit, signs.beats),
            Evidence("usual_interval_s", limit / INTERVALS, LEAST_S / INTERVALS, len(signs.intervals)),
        ]
        confidence = 1 - math.exp(-INTERVALS * age / limit) if signs.intervals else 0.9
        self.ledger.open(
            Verdict(STOPPED, subject, None, signs.progress, furthest, min(confidence, 0.999), evidence)
        )

    def _furthest(self) -> int | None:
        return max((each.progress for each in self.signs.values() if each.progress is not None), default=None)

    def _suspend(self, silent: list[int], jumped: bool) -> None:
        self._before = len(silent)
        self.suspended.update(silent)
        oldest = max(self.now_s - self.signs[rank].heard_s for rank in silent)
        share = len(silent) / len(self.signs)
        evidence = [Evidence("share_of_fleet_silent_at_once", share, 0.5, len(self.signs))]
        if jumped:
            evidence.append(Evidence("monitor_clock_gap_s", self._gaps[-1], LEAST_S, len(self._gaps)))
        evidence.append(Evidence("silence_s", oldest, LEAST_S, len(silent)))
        furthest = self._furthest()
        self.ledger.open(Verdict(FAULT, MONITOR, None, furthest, furthest, 0.9, evidence), flaps=False)

    def _resume(self) -> None:
        """Judge again once most of the suspended ranks were heard; the others get their full time."""
        if 2 * len(self.suspended) > self._before:
            return
        for rank in self.suspended:
            self.signs[rank].heard_s = self.now_s
        self.suspended.clear()
        self.ledger.clear(FAULT, MONITOR)
