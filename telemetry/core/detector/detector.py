"""The detector: takes one step after the other and keeps verdicts, online and in constant memory."""

import math
from typing import Any

import numpy as np

from telemetry.core.detector.baseline import Baselines
from telemetry.core.detector.comparison import against_peers, against_usual, lower_median
from telemetry.core.detector.fleet import Array, Assignment, Fleet, mean_by
from telemetry.core.detector.intake import Intake
from telemetry.core.detector.ledger import Ledger
from telemetry.core.detector.links import LinkTests
from telemetry.core.detector.noise import Variation
from telemetry.core.detector.samples import StepBatch
from telemetry.core.detector.sequential import LIMIT
from telemetry.core.detector.stages import StageTests
from telemetry.core.detector.verdicts import Evidence, Subject, Verdict, VerdictKind
from telemetry.core.detector.watch import Finding, Watch
from telemetry.core.detector.workload_book import WorkloadBook

NOBODY = Subject()


class Detector:
    """Finds slow devices, links, stages and fleets in per-rank step times.

    Everything is compared as logs: a series' value is its own time over what its workload lets expect.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = Ledger() if ledger is None else ledger
        self.intake = Intake()
        self.nodes: dict[int, str] = {}
        self.layouts = 0
        self._begin()

    def _begin(self) -> None:
        self.layouts += 1
        self.fleet = Fleet()
        self.workload = WorkloadBook(self.ledger)
        self.usual = Baselines()
        self.devices = Watch(self.ledger, self._device_finding)
        self.whole_fleet = Watch(self.ledger, self._fleet_finding)
        self.stages = StageTests(self.ledger, self.fleet)
        self.links = LinkTests(self.ledger, self.fleet)
        self.variation = {"workload_model": Variation(), "busiest_compute": Variation()}
        self.first_step: int | None = None
        self._peers = self._change = np.zeros(0)

    def update(self, batch: StepBatch) -> None:
        """Take the training samples of one step; steps come in order."""
        rows = self.intake.clean(batch)
        if not len(rows):
            return
        if self.fleet.moved(rows):
            self.ledger.clear_all()
            self._begin()
        if self.first_step is None:
            self.first_step = rows.step
        where = self.fleet.assign(rows)
        self._judge(rows, where, rows.step, self.first_step)

    def _judge(self, rows: StepBatch, where: Assignment, step: int, first_step: int) -> None:
        size, stage = len(self.fleet.cells), self.fleet.stage_of_cell
        own_s = rows.compute_s - np.nan_to_num(rows.wait_s)
        log_own = mean_by(where.cell, np.log(own_s), size)
        self.usual.grow(size)
        slow = self.devices.slow(size)
        tokens, sum_sq = (mean_by(where.cell, values, size) for values in (rows.tokens, rows.sum_sq))
        factor, judged, changed = self.workload.log_factor(tokens, sum_sq, stage)
        for number in changed:
            self.usual.forget(stage == number)
        value = log_own - factor
        self._change = np.where(judged, self.usual.change(value), np.nan)
        self._judge_devices(value, step, first_step)
        self.stages.update(value, self.usual, slow, step, first_step)
        self.links.update(rows, where, float(own_s.max()), step, first_step)
        calm = ~slow & (self.devices.test.evidence <= 0) & (self.whole_fleet.test.evidence[0] <= 0)
        self.usual.learn(value, calm)
        if not self.ledger.any_fault_open:
            self.workload.learn(tokens, sum_sq, np.exp(log_own), calm, stage, step)
        self._note_variation(rows, log_own, value, step, first_step)

    def _judge_devices(self, value: Array, step: int, first_step: int) -> None:
        self._peers = against_peers(value, self.fleet.stage_of_cell)
        beyond = against_usual(self._change)
        self.devices.update(np.where(np.isfinite(self._peers), self._peers, beyond), step, first_step)
        self.whole_fleet.update(np.array([lower_median(self._change)]), step, first_step)

    def _device_finding(self, index: int) -> Finding:
        cell = self.fleet.cells[index]
        node = self.nodes.get(cell.rank) if cell.rank is not None else None
        by_peers = bool(np.isfinite(self._peers[index]))
        peers = int((np.isfinite(self._peers) & (self.fleet.stage_of_cell == cell.stage)).sum()) - 1
        more = [Evidence("peers", max(peers, 0), 2, int(self.devices.test.count[index]))]
        change = float(self._change[index])
        if by_peers and math.isfinite(change):
            more.append(
                Evidence("against_own_past", math.exp(change), math.exp(LIMIT), int(self.usual.count[index]))
            )
        subject = Subject(cell.rank, cell.replica, cell.stage, node)
        test = "same_stage_peers" if by_peers else "against_own_past"
        return Finding(VerdictKind.DEVICE_FAIL_SLOW, subject, test, more)

    def _fleet_finding(self, index: int) -> Finding:
        changed = self._change[np.isfinite(self._change)]
        more = [Evidence("share_of_ranks_slower", float((changed > LIMIT).mean()), 0.5, len(changed))]
        return Finding(VerdictKind.GLOBAL_SLOWDOWN, NOBODY, "fleet_against_own_past", more)

    def _note_variation(
        self, rows: StepBatch, log_own: Array, value: Array, step: int, first_step: int
    ) -> None:
        self.variation["workload_model"].add(log_own, value)
        walls = rows.wall_s[np.isfinite(rows.wall_s)]
        if len(walls):
            wall = np.log(np.median(walls))
            busiest = np.log((rows.compute_s - np.nan_to_num(rows.wait_s)).max())
            self.variation["busiest_compute"].add(np.array([wall]), np.array([wall - busiest]))
        if self.ledger.is_open(VerdictKind.WORKLOAD_NOISE, NOBODY):
            return
        for name, variation in self.variation.items():
            if variation.is_workload:
                raw, explained = variation.coefficients
                evidence = [
                    Evidence("variation_observed", raw, 0.05, variation.count),
                    Evidence(f"variation_after_{name}", explained, raw / 2, variation.count),
                ]
                verdict = Verdict(
                    VerdictKind.WORKLOAD_NOISE, NOBODY, None, first_step, step, 1 - explained / raw, evidence
                )
                self.ledger.open(verdict, flaps=False)
                return

    def verdicts(self) -> list[Verdict]:
        """Return all verdicts in order of detection, those that are open brought up to date."""
        for part in (self.devices, self.whole_fleet, self.stages.watch, self.links):
            part.refresh()
        return self.ledger.verdicts

    def slowdowns(self) -> dict[int, float]:
        """Return for each rank its recent factor: the median of its last steps, 1.0 where none are known."""
        recent = self.devices.test.recent
        found = {}
        for index, cell in enumerate(self.fleet.cells[: len(recent)]):
            values = recent[index][np.isfinite(recent[index])]
            if cell.rank is not None:
                found[cell.rank] = math.exp(float(np.median(values))) if len(values) else 1.0
        return found

    def model_document(self) -> dict[str, Any]:
        """Return the workload model as plain data."""
        return self.workload.to_json()

    def warnings(self) -> list[str]:
        """Return what a person should know besides the verdicts."""
        found = []
        if self.intake.unit_ranks:
            ranks = sorted(self.intake.unit_ranks)
            shown = ", ".join(map(str, ranks[:10])) + (
                f" and {len(ranks) - 10} more" if len(ranks) > 10 else ""
            )
            found.append(
                f"samples of rank {shown} are off by a factor of a thousand or a million and were dropped: "
                "they are probably in milliseconds or microseconds, not seconds"
            )
        if self.layouts > 1:
            found.append(
                f"ranks changed their replica or stage {self.layouts - 1} times; all was learned anew there"
            )
        return found + self.workload.notes()
