"""Step logs in JSON lines, from a file to verdicts."""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from forebay.cli.errors import BadInput
from telemetry.core.detector import (
    Detector,
    HeartbeatMonitor,
    StepSample,
    Subject,
    Verdict,
    batch_of,
    sample_from,
)
from telemetry.core.detector.samples import number, whole
from telemetry.core.errors import MalformedLine


class StepLog:
    """Takes lines in order of the file; steps are judged in order of step once all are read."""

    def __init__(self) -> None:
        self.detector = Detector()
        self.monitor = HeartbeatMonitor(self.detector.ledger, self.place)
        self.steps: dict[int, dict[int, StepSample]] = {}
        self.places: dict[int, StepSample] = {}
        self.repeated = 0

    def place(self, rank: int) -> Subject:
        """Return where a rank sits, as far as its step lines said so."""
        sample = self.places.get(rank)
        if sample is None:
            return Subject(rank)
        return Subject(rank, sample.replica, sample.stage, sample.node)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take one line; MalformedLine where it is none of the three kinds."""
        if "beat" in row:
            self._beat(row)
        elif "now_s" in row and "step" not in row:
            now_s = number(row, "now_s")
            if self._is_clock(now_s):
                self.monitor.tick(now_s)
        else:
            self._step(sample_from(row))

    def _beat(self, row: Mapping[str, Any]) -> None:
        rank = whole(row, "beat")
        if "received_s" not in row:
            raise MalformedLine("received_s is missing")
        progress = whole(row, "progress") if row.get("progress") is not None else None
        received_s = number(row, "received_s")
        if self._is_clock(received_s):
            self.monitor.beat(rank, received_s, progress)

    def _is_clock(self, seconds: float) -> bool:
        if math.isfinite(seconds):
            return True
        self.detector.intake.non_finite += 1
        return False

    def _step(self, sample: StepSample) -> None:
        ranks = self.steps.setdefault(sample.step, {})
        self.repeated += sample.rank in ranks
        ranks[sample.rank] = sample
        self.places[sample.rank] = sample
        if sample.node is not None:
            self.detector.nodes[sample.rank] = sample.node
        self.monitor.step(sample.rank, sample.step)

    def finish(self) -> tuple[list[Verdict], dict[str, Any]]:
        """Judge the steps; returns the verdicts and the document to print."""
        for step in sorted(self.steps):
            self.detector.update(batch_of(step, list(self.steps[step].values())))
        return report(self.detector, self.detector.verdicts(), self._warnings())

    def _warnings(self) -> list[str]:
        found = []
        if not self.steps and not self.monitor.signs:
            found.append("the file holds neither steps nor heartbeats")
        if self.repeated:
            found.append(f"{self.repeated} lines repeat a step of the same rank: the last one counts")
        if self.monitor.backwards:
            found.append(
                f"the monitor's clock went backwards {self.monitor.backwards} times: the latest time was kept"
            )
        return found


def report(
    detector: Detector, found: list[Verdict], more_warnings: Iterable[str] = ()
) -> tuple[list[Verdict], dict[str, Any]]:
    """Return the verdicts in order of detection and the document of `forebay detect`."""
    verdicts = sorted(found, key=lambda verdict: verdict.detected_step or 0)
    intake = detector.intake
    document = {
        "verdicts": [verdict.to_json() for verdict in verdicts],
        "model": detector.model_document(),
        "coverage": intake.coverage,
        "dropped": {"non_finite": intake.non_finite, "unit": intake.unit},
        "warnings": [*detector.warnings(), *more_warnings],
    }
    return verdicts, document


def detect_in_lines(path: Path) -> tuple[list[Verdict], dict[str, Any]]:
    """Read a step log and judge it. Whatever is wrong with it becomes one sentence with its line."""
    log = StepLog()
    for line_number, line in enumerate(_lines(path), start=1):
        text = line.strip()
        if not text:
            continue
        where = f"{path}: line {line_number}"
        try:
            row = json.loads(text)
        except RecursionError:
            raise BadInput(f"{where}: is nested too deeply") from None
        except ValueError as error:
            raise BadInput(f"{where}: is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise BadInput(f"{where}: must be a JSON object, one for each rank and step")
        try:
            log.add(row)
        except MalformedLine as error:
            raise BadInput(f"{where}: {error}") from None
    return log.finish()


def _lines(path: Path) -> Iterator[str]:
    try:
        if str(path) == "-":
            yield from sys.stdin
            return
        with path.open(encoding="utf-8") as file:
            yield from file
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: is not a text file in UTF-8") from None
