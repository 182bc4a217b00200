"""What a lent device gave in the last moment, as figures for people: used, skipped and why, slowdown."""

import math
import statistics
import time
from collections import deque
from dataclasses import asdict
from typing import Any

from cluster.core.coordinator import LendingDecision, Slowdown, measure_slowdown
from workers.squeezer.board import Passed, Totals
from workers.squeezer.guarding import LendingGuard
from workers.squeezer.lengths import SlotLengths
from workers.squeezer.stage import Skipped, Stage

KEPT_ROUNDS = 400
SUMS = ("covers_s", "waited_s", "lent_s", "used_s", "leaked_s", "granted_s", "bubbles", "in_pieces")


class Sampler:
    """Reads a stage's board and guests; each sample covers the time since the one before."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._guard = LendingGuard(stage.rules.lending)
        self._totals: Totals = stage.board.totals()
        self._after = stage.board.turn
        self._taken_s = time.monotonic()
        self._lengths = SlotLengths()
        self._steps: dict[str, int] = {}
        self._round: tuple[int, int] | None = None
        self._lent_s: deque[float] = deque(maxlen=KEPT_ROUNDS)
        self._control_s: deque[float] = deque(maxlen=KEPT_ROUNDS)

    def take(self) -> dict[str, Any]:
        """Return the sample of now."""
        board, stage = self.stage.board, self.stage
        passed = board.passed(self._after)
        if passed:
            self._after = passed[-1].turn
        for bubble in passed:
            self._note_round(bubble)
        totals = board.totals()
        grown, self._totals = totals.since(self._totals), totals
        slowdown = measure_slowdown(list(self._lent_s), list(self._control_s))
        decision = self._judge(slowdown)
        now_s = time.monotonic()
        covers_s, self._taken_s = now_s - self._taken_s, now_s
        with stage.lock:
            guests = [self._guest(name) for name in stage.guests]
            skipped, stage.skipped = list(stage.skipped.values()), {}
            in_pieces, stage.in_pieces = stage.in_pieces, 0
            granted_ns, stage.granted_ns = stage.granted_ns, 0
            resumes_ns, pauses_ns = sorted(stage.resumes_ns), sorted(stage.pauses_ns)
        return {
            "board": str(stage.path),
            "epoch": board.epoch,
            "covers_s": covers_s,
            "lending": stage.lending,
            "decision": asdict(decision),
            "limit": self._guard.policy.limit,
            "waited_s": grown.waited_ns / 1e9,
            "lent_s": grown.lent_ns / 1e9,
            "used_s": grown.used_ns / 1e9,
            "granted_s": granted_ns / 1e9,
            "got": grown.used_ns / granted_ns if granted_ns else None,
            "leaked_s": grown.leaked_ns / 1e9,
            "utilisation": grown.used_ns / grown.waited_ns if grown.waited_ns else None,
            "bubbles": grown.bubbles,
            "in_pieces": in_pieces,
            "slots": self._slots(passed),
            "skipped": [asdict(row) for row in skipped],
            "enforced": stage.enforced,
            "resume_s": _quantiles(resumes_ns),
            "pause_s": _quantiles(pauses_ns),
            "slowdown": None if slowdown is None else asdict(slowdown),
            "guests": guests,
        }

    def _judge(self, slowdown: Slowdown | None) -> LendingDecision:
        """Have the guard decide; after a stop or before a new try everything is measured anew."""
        decision = self._guard.judge(slowdown, time.monotonic())
        if self._guard.lending != self.stage.lending:
            self.stage.lend(self._guard.lending)
            self._lent_s.clear()
            self._control_s.clear()
        return decision

    def switch(self, lending: bool) -> None:
        """An operator switches lending off, or allows it again."""
        self._guard.switched_off = not lending
        self._judge(None)

    def _guest(self, name: str) -> dict[str, Any]:
        guest = self.stage.guests[name]
        before, now = self._steps.get(name, 0), guest.gate.steps
        self._steps[name] = now
        return {
            "name": name,
            "run": guest.run,
            "trials": guest.size,
            "steps": now - before,
            "step_s": guest.step_s() or None,
            "stopped": guest.stopped,
        }

    def _slots(self, passed: list[Passed]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for bubble in passed:
            self._lengths.note(bubble.slot, bubble.left_ns - bubble.entered_ns)
        for slot in sorted({bubble.slot for bubble in passed}):
            mine = [bubble for bubble in passed if bubble.slot == slot]
            lengths = [bubble.left_ns - bubble.entered_ns for bubble in mine]
            found.append(
                {
                    "slot": slot,
                    "expected_s": self._lengths.low_ns(slot) / 1e9 or None,
                    "median_s": statistics.median(lengths) / 1e9,
                    "lent_s": sum(lengths) / 1e9,
                    "used_s": sum(bubble.used_ns for bubble in mine) / 1e9,
                    "seen": len(mine),
                }
            )
        return found

    def _note_round(self, bubble: Passed) -> None:
        """Iterations are compared by the time between their first announced bubbles."""
        if self._round is None or bubble.round != self._round[0]:
            if self._round is not None and bubble.round == self._round[0] + 1:
                self._add(self._round[0], (bubble.entered_ns - self._round[1]) / 1e9)
            self._round = (bubble.round, bubble.entered_ns)

    def _add(self, number: int, seconds: float) -> None:
        if self.stage.is_control(number):
            self._control_s.append(seconds)
        elif self.stage.lending and self.stage.guests:
            self._lent_s.append(seconds)


def joined(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what samples that follow one another say together: sums, and what the last one says besides."""
    last = samples[-1]
    sums = {name: sum(sample[name] for sample in samples) for name in SUMS}
    slots: dict[int, dict[str, Any]] = {}
    skipped: dict[tuple[int, str], Skipped] = {}
    steps: dict[str, int] = {}
    for sample in samples:
        for row in sample["slots"]:
            before = slots.get(row["slot"], {"lent_s": 0.0, "used_s": 0.0, "seen": 0})
            slots[row["slot"]] = row | {
                name: before[name] + row[name] for name in ("lent_s", "used_s", "seen")
            }
        for row in sample["skipped"]:
            found = skipped.setdefault((row["slot"], row["rule"]), Skipped(row["slot"], row["rule"]))
            found.count, found.reason = found.count + row["count"], row["reason"]
        for guest in sample["guests"]:
            steps[guest["name"]] = steps.get(guest["name"], 0) + guest["steps"]
    return (
        last
        | sums
        | {
            "utilisation": sums["used_s"] / sums["waited_s"] if sums["waited_s"] else None,
            "got": sums["used_s"] / sums["granted_s"] if sums["granted_s"] else None,
            "slots": [slots[slot] for slot in sorted(slots)],
            "skipped": [asdict(skipped[key]) for key in sorted(skipped)],
            "guests": [guest | {"steps": steps[guest["name"]]} for guest in last["guests"]],
        }
    )


def _quantiles(sorted_ns: list[int]) -> dict[str, float] | None:
    """Median and 99th percentile, by nearest rank; None of nothing."""
    if not sorted_ns:
        return None
    count = len(sorted_ns)
    return {
        "p50": sorted_ns[(count - 1) // 2] / 1e9,
        "p99": sorted_ns[math.ceil(0.99 * count) - 1] / 1e9,
        "count": count,
    }
