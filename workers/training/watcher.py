"""The detector at work: fed while the job trains, it says which incidents began, changed and ended."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Any

from telemetry.core.detector import (
    Detector,
    HeartbeatMonitor,
    StepSample,
    Subject,
    Verdict,
    VerdictKind,
    batch_of,
)
from telemetry.core.detector.verdicts import Evidence
from telemetry.services.verdicts import FoundVerdict
from workers.training.book import RankStep, Seat, Step

REMEMBERED = 240
# A slowdown this many times as large, or as small, may deserve another plan.
ANOTHER = 1.25


@dataclass
class Incident:
    """A verdict of the detector and what the database knows of it."""

    verdict: Verdict
    verdict_id: Any = None
    told: tuple[Any, ...] = ()
    planned_for: float | None = None
    is_closed: bool = False

    @property
    def needs_new_plan(self) -> bool:
        """Whether it has become another matter than what the recovery loop was last told of."""
        now, then = self.verdict.slowdown, self.planned_for
        return now is not None and then is not None and not 1 / ANOTHER < now / then < ANOTHER


@dataclass
class Changes:
    """What became of incidents since the last look."""

    opened: list[Incident] = field(default_factory=list)
    changed: list[Incident] = field(default_factory=list)
    cleared: list[Incident] = field(default_factory=list)


class Watcher:
    """Detector and heartbeat monitor over one layout."""

    def __init__(self, seats: Mapping[int, Seat], nodes: Mapping[int, str], *, shares_core: bool) -> None:
        self.seats, self.nodes, self.shares_core = dict(seats), dict(nodes), shares_core
        self.detector = Detector()
        self.detector.nodes.update(self.nodes)
        self.monitor = HeartbeatMonitor(self.detector.ledger, self.subject_of)
        self.incidents: list[Incident] = []
        self._usual_tokens = 0.0
        self._series: deque[tuple[int, datetime, dict[int, float]]] = deque(maxlen=REMEMBERED)

    def subject_of(self, rank: int) -> Subject:
        """Return a rank as the subject of a verdict."""
        seat = self.seats.get(rank)
        node = self.nodes.get(rank)
        return Subject(rank, seat.replica, seat.stage, node) if seat else Subject(rank, node=node)

    def beat(self, rank: int, received_s: float, progress: int) -> None:
        """Take a heartbeat as the driver's clock received it."""
        self.monitor.beat(rank, received_s, progress)

    def tick(self, now_s: float) -> None:
        """Judge who is silent."""
        self.monitor.tick(now_s)

    def step(self, step: Step, at: datetime) -> None:
        """Judge one committed iteration; times are per micro-batch, so that moving some changes nothing."""
        samples = [self._sample(step.step, row) for row in step.ranks]
        for row in step.ranks:
            self.monitor.step(row.rank, step.step)
        self.detector.update(batch_of(step.step, samples))
        own = {row.rank: row.own_s / row.microbatches for row in step.ranks}
        self._series.append((step.step, at, own))

    def _sample(self, step: int, row: RankStep) -> StepSample:
        count = row.microbatches
        own_s, tokens, sum_sq, wait_s = row.own_s / count, row.tokens / count, row.sum_sq / count, math.nan
        if self.shares_core:
            # Neighbours on a core disturb each other more than lengths differ: a model would fit that noise
            # and be refused. Time per token is compared instead; processor time contains no waiting.
            self._usual_tokens = self._usual_tokens or tokens
            own_s, tokens, sum_sq, wait_s = own_s * self._usual_tokens / tokens, math.nan, math.nan, 0.0
        return StepSample(
            step=step,
            rank=row.rank,
            replica=row.seat.replica,
            stage=row.seat.stage,
            compute_s=own_s,
            node=self.nodes.get(row.rank),
            wait_s=wait_s,
            wall_s=row.seconds / count,
            tokens=tokens,
            sum_sq=sum_sq,
        )

    def lose(self, rank: int, step: int, silent_s: float) -> None:
        """Open a fail-stop for a rank whose process is gone; nothing needs to be waited for."""
        evidence = [Evidence("process_gone", 1.0, 1.0, 1), Evidence("silence_s", silent_s, 0.0, 1)]
        subject = self.subject_of(rank)
        self.detector.ledger.open(Verdict(VerdictKind.FAIL_STOP, subject, None, step, step, 0.999, evidence))
        self.monitor.signs.pop(rank, None)

    def forget(self, rank: int) -> None:
        """End the fail-stop of a rank whose process was started anew."""
        self.detector.ledger.clear(VerdictKind.FAIL_STOP, self.subject_of(rank))
        self.monitor.signs.pop(rank, None)
        self.monitor.stopped.pop(rank, None)

    def dead(self) -> set[int]:
        """Return the ranks that have stopped, as far as is known."""
        return {
            incident.verdict.subject.rank
            for incident in self.incidents
            if incident.verdict.kind == VerdictKind.FAIL_STOP
            and incident.verdict.state == "open"
            and incident.verdict.subject.rank is not None
        }

    @property
    def calm(self) -> bool:
        """Whether nothing is known to be wrong."""
        return not self.detector.ledger.any_fault_open

    @property
    def since(self) -> int | None:
        """The step from which the latest open incident of a rank on began."""
        steps = [
            incident.verdict.first_step
            for incident in self.incidents
            if incident.verdict.state == "open" and incident.verdict.subject.rank is not None
        ]
        return max((step for step in steps if step is not None), default=None)

    def slowdowns(self) -> dict[int, float]:
        """Return each rank's recent slowdown against its peers or its own past, 1.0 where it is unknown."""
        return self.detector.slowdowns()

    def look(self) -> Changes:
        """Return which incidents began, changed and ended since the last look."""
        changes = Changes()
        known = {id(incident.verdict): incident for incident in self.incidents}
        present = self.detector.verdicts()
        for verdict in present:
            incident = known.get(id(verdict))
            if incident is None:
                incident = Incident(verdict)
                self.incidents.append(incident)
                changes.opened.append(incident)
                incident.told = _told(verdict)
            elif verdict.state == "open" and incident.told != _told(verdict):
                incident.told = _told(verdict)
                changes.changed.append(incident)
            if verdict.state == "cleared" and not incident.is_closed:
                changes.cleared.append(incident)
                incident.is_closed = True
        self._drop_merged({id(verdict) for verdict in present}, changes)
        return changes

    def _drop_merged(self, present: set[int], changes: Changes) -> None:
        """Those that were merged into one intermittent incident have ended for the database."""
        for incident in [each for each in self.incidents if id(each.verdict) not in present]:
            if not incident.is_closed:
                changes.cleared.append(incident)
            self.incidents.remove(incident)

    def found(self, incident: Incident) -> FoundVerdict:
        """Return an incident as it is written down."""
        verdict = incident.verdict
        times = {step: at for step, at, _ in self._series}
        return FoundVerdict(
            kind=verdict.kind,
            subject=verdict.subject.to_json(),
            confidence=verdict.confidence,
            factor=verdict.slowdown,
            first_step=verdict.first_step,
            detected_step=verdict.detected_step,
            evidence=[row.to_json() for row in verdict.evidence],
            series=self.series(verdict.subject.rank),
            first_sample_at=times.get(verdict.first_step or -1),
        )

    def series(self, rank: int | None) -> dict[str, Any]:
        """Return own seconds per micro-batch of a rank and the median of its stage's others, by step."""
        if rank is None or rank not in self.seats:
            return {}
        stage = self.seats[rank].stage
        peers = [other for other, seat in self.seats.items() if seat.stage == stage and other != rank]
        rows = [(step, own) for step, _, own in self._series if rank in own]
        return {
            "unit": "seconds per micro-batch",
            "steps": [step for step, _ in rows],
            "subject": [own[rank] for _, own in rows],
            "peers": [_median([own[other] for other in peers if other in own]) for _, own in rows],
        }


def _told(verdict: Verdict) -> tuple[Any, ...]:
    """What makes a change of an open incident worth writing down."""
    slowdown = None if verdict.slowdown is None else round(verdict.slowdown, 1)
    return slowdown, round(verdict.confidence, 2), str(verdict.kind)


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
