"""A sequential test and the verdicts that come of it: from series that turn slow to incidents and back."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from telemetry.core.detector.ledger import Ledger
from telemetry.core.detector.sequential import LIMIT, LOG_ODDS, Array, Mask, SequentialTest
from telemetry.core.detector.verdicts import Evidence, Subject, Verdict, VerdictKind

MOST_CONFIDENT = 0.999


@dataclass
class Finding:
    """What a series stands for: the kind and subject of its verdict, the test's name, further evidence."""

    kind: VerdictKind
    subject: Subject
    test: str
    more: list[Evidence]


class Watch:
    """Runs one SequentialTest over the series of one question and keeps the ledger up to date."""

    def __init__(self, ledger: Ledger, find: Callable[[int], Finding]) -> None:
        self.ledger = ledger
        self.find = find
        self.test = SequentialTest()
        self.first_step: int | None = None
        # What a series' values were lowered by, so that the reported factor is the true one.
        self.offset = 0.0
        self._open: dict[int, tuple[VerdictKind, Subject]] = {}

    def update(self, slowdown: Array, step: int, first_step: int) -> None:
        """Take one step's log slowdowns, NaN where absent; what began slow did so at first_step."""
        self.test.grow(len(slowdown))
        if not np.isfinite(slowdown).any():
            return
        if self.first_step is None:
            self.first_step = step
        change = self.test.update(slowdown, step)
        for index in change.raised:
            self._raise(index, step, first_step)
        for index in change.cleared:
            if index in self._open:
                self._follow(index)
                self.ledger.clear(*self._open.pop(index))

    def refresh(self) -> None:
        """Bring the slowdowns of incidents that are going on up to date."""
        for index in self._open:
            self._follow(index)

    def slow(self, size: int) -> Mask:
        """Return which of so many series are slow."""
        self.test.grow(size)
        return self.test.slow

    def _raise(self, index: int, step: int, first_step: int) -> None:
        test, finding = self.test, self.find(index)
        since = int(test.since[index])
        # The series' very first samples were slow already: nothing says that it began with them.
        if since == self.first_step:
            since = first_step
        threshold = float(test.threshold[index])
        evidence = [
            Evidence(
                finding.test, self._factor(index), math.exp(LIMIT + self.offset), int(test.count[index])
            ),
            Evidence("cusum", float(test.evidence[index]), threshold, int(test.active[index])),
            *finding.more,
        ]
        verdict = Verdict(
            finding.kind, finding.subject, self._factor(index), since, step, self._confidence(index), evidence
        )
        self.ledger.open(verdict)
        self._open[index] = (finding.kind, finding.subject)

    def _follow(self, index: int) -> None:
        self.ledger.update(*self._open[index], self._factor(index), self._confidence(index))

    def _factor(self, index: int) -> float:
        return math.exp(float(self.test.level[index]) + self.offset)

    def _confidence(self, index: int) -> float:
        """From the evidence's log-likelihood ratio; few steps say only so much."""
        share = float(self.test.evidence[index]) / float(self.test.threshold[index])
        odds = min(share * LOG_ODDS, 2.0 * float(self.test.active[index]))
        return min(MOST_CONFIDENT, 1 - math.exp(-odds) / 2)
