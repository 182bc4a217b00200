"""Stages: imbalance between them, and what too few peers cannot tell."""

import math

import numpy as np

from telemetry.core.detector.baseline import Baselines
from telemetry.core.detector.comparison import PEERS, TWO_STAGES, against_stages, stage_times
from telemetry.core.detector.fleet import Array, Fleet
from telemetry.core.detector.ledger import Ledger
from telemetry.core.detector.sequential import LIMIT, Mask
from telemetry.core.detector.verdicts import Evidence, Subject, Verdict, VerdictKind
from telemetry.core.detector.watch import Finding, Watch

UNCLEAR = VerdictKind.INSUFFICIENT_EVIDENCE
# Two cells that differ from the start: one is slow, and only the difference says which.
UNCLEAR_CONFIDENCE = 0.5


class StageTests:
    """Watches the stages' typical times; pairs of cells are compared once, when both are known."""

    def __init__(self, ledger: Ledger, fleet: Fleet) -> None:
        self.ledger = ledger
        self.fleet = fleet
        self.numbers: list[int] = []
        self.watch = Watch(ledger, self._finding)
        self._compared: set[int] = set()

    def update(self, value: Array, usual: Baselines, slow: Mask, step: int, first_step: int) -> None:
        """Take one step's log times of all cells, without what the workload explains."""
        stage = self.fleet.stage_of_cell
        known = set(self.numbers)
        self.numbers += [number for number in np.unique(stage).tolist() if number not in known]
        times = stage_times(value, usual.value, slow, stage, self.numbers)
        self.watch.offset = TWO_STAGES - LIMIT if np.isfinite(times).sum() == 2 else 0.0
        self.watch.update(against_stages(times), step, first_step)
        if len(self._compared) < len(self.numbers):
            self._compare_pairs(usual, slow, step, first_step)

    def _finding(self, index: int) -> Finding:
        number = self.numbers[index]
        mine = [cell for cell in self.fleet.cells if cell.stage == number]
        if len(mine) == 1:
            # Whether the stage has more work or its only device is slow cannot be told.
            subject = Subject(mine[0].rank, mine[0].replica, number, None)
            return Finding(UNCLEAR, subject, "stage_against_other_stages", [])
        more = [Evidence("cells_of_stage", len(mine), PEERS, len(mine))]
        subject = Subject(None, None, number, None)
        return Finding(VerdictKind.STAGE_IMBALANCE, subject, "stage_against_other_stages", more)

    def _compare_pairs(self, usual: Baselines, slow: Mask, step: int, first_step: int) -> None:
        for number in self.numbers:
            cells = np.flatnonzero(self.fleet.stage_of_cell == number)
            if number in self._compared or not usual.settled[cells].all():
                continue
            self._compared.add(number)
            if len(cells) == 2 and not slow[cells].any():
                self._compare(int(cells[0]), int(cells[1]), usual, step, first_step)

    def _compare(self, one: int, other: int, usual: Baselines, step: int, first_step: int) -> None:
        apart = float(usual.value[one] - usual.value[other])
        if not abs(apart) > LIMIT:
            return
        cell = self.fleet.cells[one if apart > 0 else other]
        slowdown = math.exp(abs(apart))
        evidence = [
            Evidence("same_stage_pair", slowdown, math.exp(LIMIT), int(usual.count[one])),
            Evidence("peers", 1, PEERS - 1, 2),
        ]
        subject = Subject(cell.rank, cell.replica, cell.stage, None)
        verdict = Verdict(UNCLEAR, subject, slowdown, first_step, step, UNCLEAR_CONFIDENCE, evidence)
        self.ledger.open(verdict, flaps=False)
