"""The ranks of one start in a driver's hands: what they say, what is written of it, what they are told."""

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from cluster.services.leases import Held, fence
from jobs.core.states import JobState
from jobs.models import Job, TrainingRun
from jobs.services.reconfigurations import record_outcome
from jobs.services.training_runs import (
    CommittedStep,
    Progress,
    record_checkpoint,
    set_substate,
    take_injections,
    write_progress,
)
from telemetry.core.states import VerdictState
from telemetry.models import Verdict
from telemetry.services import record_failure
from telemetry.services.recovery import ring_recovery
from telemetry.services.verdicts import clear_verdict, follow_verdict, open_verdict
from workers.trainer.parallel.errors import ParallelError
from workers.trainer.parallel.fleet import Fleet
from workers.training.book import Book, Step, seats_of
from workers.training.helm import Helm, StartAnew
from workers.training.watcher import Changes, Incident, Watcher

log = structlog.get_logger(__name__)
TICK_S = 0.5
# After a new layout these iterations are not measured, then so many are, to hold against the prediction.
SETTLE, MEASURED = 3, 10
# Without any iteration for so long, or so many usual iterations, the ranks hang.
HANGS_AFTER_S, HANGS_AFTER_ITERATIONS = 60.0, 30
FLAP_S = 5.0

__all__ = ["Crew", "Ended", "StartAnew"]


@dataclass(frozen=True)
class Ended:
    """How the run came to its end."""

    state: JobState
    reason: str = ""
    model: Path | None = None


class Crew:
    """Reads events into the book and the watcher, writes turns, and lets the helm change the layout."""

    def __init__(self, job: Job, run: TrainingRun, held: Held, fleet: Fleet) -> None:
        self.job, self.run, self.held, self.fleet = job, run, held, fleet
        self.shares_core = any(row["kind"] == "cpu" for row in run.devices)
        self.nodes = {row["rank"]: row["node"] for row in run.devices}
        self.book = Book(self.shares_core)
        self.watcher = Watcher({}, self.nodes, shares_core=self.shares_core)
        self.began_s, self.elapsed_s = time.monotonic(), run.elapsed_s
        self.ended: Ended | None = None
        self.checkpoint: tuple[int, str] | None = None
        self.broken: set[int] = set()
        self._steps: list[tuple[Step, float | None, datetime]] = []
        self._changes = Changes()
        self._failures: list[str] = []
        self._checkpoints: list[tuple[int, str]] = []
        self._held_back: list[dict[str, Any]] = []
        self._ticked_s = self._moved_s = time.monotonic()
        self.helm = Helm(self)

    @property
    def can_checkpoint(self) -> bool:
        """Whether the ranks are at work, so that they reach a boundary."""
        return self.helm.order is None and not self.dead

    @property
    def dead(self) -> set[int]:
        """Ranks of the present layout that do not work any more."""
        return (self.watcher.dead() | self.fleet.lost() | self.broken) & set(self.book.seats)

    @property
    def can_write_checkpoint(self) -> bool:
        """Whether the next turn writes down the last checkpoint, or has done so already."""
        return self.checkpoint is not None and self.checkpoint[0] <= self._written_to

    @property
    def _written_to(self) -> int:
        """The step up to which iterations are written once the next turn has."""
        return self._steps[-1][0].step if self._steps else self.run.step

    @property
    def _due(self) -> tuple[int, str] | None:
        """The newest checkpoint that the iterations before it are written with.

        One rank tells of a checkpoint while others have yet to tell of iterations before it: written down
        early, it would have another driver go on behind iterations that nobody has recorded.
        """
        due = [kept for kept in self._checkpoints if kept[0] <= self._written_to]
        return max(due, default=None)

    def listen(self) -> None:
        """Take what the ranks have said since the last call, and judge it."""
        now_s = time.monotonic()
        for event in self.fleet.poll():
            self._take(event, now_s)
        if now_s - self._ticked_s >= TICK_S:
            self._ticked_s = now_s
            self.watcher.tick(now_s)
        for rank in sorted((self.fleet.lost() | self.broken) & set(self.book.seats)):
            if rank not in self.watcher.dead():
                self.watcher.lose(rank, self.book.last, self.fleet.silent_s(rank))
                self.gather()
        self._read_book()

    def gather(self) -> None:
        """Add what became of incidents to what the next turn writes."""
        found = self.watcher.look()
        self._changes.opened += found.opened
        self._changes.changed += found.changed
        self._changes.cleared += found.cleared

    def _take(self, event: dict[str, Any], now_s: float) -> None:
        kind, order = event["kind"], self.helm.order
        if kind == "heartbeat":
            self.watcher.beat(event["plan_rank"], now_s, event["step"])
        elif kind == "iteration":
            if order is not None and event["epoch"] >= order.epoch:
                self._held_back.append(event)
            else:
                self.book.add(event)
        elif kind == "checkpoint":
            self.checkpoint = (event["step"], event["path"])
            self._checkpoints.append(self.checkpoint)
        elif kind == "checkpoint_failed":
            self._failures.append(f"the checkpoint of step {event['step']} failed: {event['reason']}")
        elif kind == "finished":
            self.ended = Ended(JobState.COMPLETED, model=Path(event["path"]))
        elif kind == "abandoned":
            self.helm.abandoned(event)
        elif kind == "failed":
            self._failed(event)
        if order is not None:
            order.take(event)

    def _failed(self, event: dict[str, Any]) -> None:
        order = self.helm.order
        if event.get("epoch") is None:
            log.warning("rank.broken", rank=event["plan_rank"], reason=event["reason"])
            self.broken.add(event["plan_rank"])
        elif order is None or event["epoch"] != order.epoch:
            self.ended = Ended(JobState.FAILED, f"rank {event['plan_rank']}: {event['reason']}")

    def _read_book(self, *, flush: bool = False) -> None:
        for step in self.book.take(calm=self.watcher.calm, flush=flush):
            at = timezone.now()
            self._steps.append((step, self.book.expected_s, at))
            self.watcher.step(step, at)
            self._moved_s = time.monotonic()
        self.gather()

    def enter(self, layout: dict[str, Any], step: int, *, expected_s: float | None, fresh: bool) -> None:
        """Go on in a layout; a fresh watcher knows nothing of how its ranks were elsewhere."""
        self._read_book(flush=True)
        self.book.begin(layout, step, expected_s=expected_s)
        self._steps = [row for row in self._steps if row[0].step <= step]
        self._checkpoints = [kept for kept in self._checkpoints if kept[0] <= step]
        if fresh:
            self._changes = Changes()
            self.watcher = Watcher(seats_of(layout), self.nodes, shares_core=self.shares_core)
        self._moved_s = time.monotonic()
        waiting, self._held_back = self._held_back, []
        for event in waiting:
            self.book.add(event)

    def turn(self) -> None:
        """Write what happened since the last turn, then steer; raises StartAnew where only that helps."""
        if self.ended is not None:
            if self.helm.order is not None and not self.helm.order.missing:
                self.helm.follow(self.helm.order)  # the run ended before anybody looked at its last layout
            self._read_book(flush=True)
        self._write()
        self._forget_written()
        if self.ended is not None:
            return
        self._hand_on_faults()
        self.helm.steer()
        self.measure_outcome()
        self._notice_hang()
        set_substate(job_id=self.job.pk, held=self.held, substate=self.helm.substate)

    @transaction.atomic
    def _write(self) -> None:
        fence(self.held)
        steps = [self._committed(*row) for row in self._steps]
        write_progress(run=self.run, held=self.held, progress=Progress(steps, self._fields(steps)))
        if self._due is not None:
            record_checkpoint(run=self.run, held=self.held, step=self._due[0], path=self._due[1])
        for words in self._failures:
            record_failure(kind="checkpoint.failed", job=self.job, message=words)
        for incident in self._changes.opened:
            self._open(incident)
        for incident in self._changes.changed:
            self._follow(incident)
        for incident in self._changes.cleared:
            if incident.verdict_id is not None:
                clear_verdict(verdict_id=incident.verdict_id, reason="it went back to its usual speed")

    def _open(self, incident: Incident) -> None:
        rank = incident.verdict.subject.rank
        device = self.run.devices[rank]["id"] if rank is not None else None
        found = self.watcher.found(incident)
        verdict, is_new = open_verdict(job_id=self.job.pk, found=found, device_id=device)
        incident.verdict_id, incident.planned_for = verdict.pk, incident.verdict.slowdown
        if is_new:
            ring_recovery(verdict)

    def _follow(self, incident: Incident) -> None:
        if incident.verdict_id is None:
            return
        found = self.watcher.found(incident)
        follow_verdict(
            verdict_id=incident.verdict_id,
            factor=found.factor,
            confidence=found.confidence,
            evidence=found.evidence,
            series=found.series,
        )
        if incident.needs_new_plan:
            ring_recovery(Verdict.objects.get(pk=incident.verdict_id))
            incident.planned_for = found.factor

    def _forget_written(self) -> None:
        if self._due is not None:
            self.run.checkpoint_step = due_step = self._due[0]
            self._checkpoints = [kept for kept in self._checkpoints if kept[0] > due_step]
            self.fleet.known(due_step)
        self.run.step = self._written_to
        self._steps, self._changes, self._failures = [], Changes(), []

    def _committed(self, step: Step, expected_s: float | None, at: datetime) -> CommittedStep:
        return CommittedStep(
            step=step.step,
            epoch=self.run.epoch,
            seconds=step.seconds,
            expected_s=expected_s,
            loss=step.loss,
            tokens=step.tokens,
            ranks=[row.raw for row in step.ranks],
        )

    def _fields(self, steps: list[CommittedStep]) -> dict[str, Any]:
        fields: dict[str, Any] = {"elapsed_s": self.elapsed_s + time.monotonic() - self.began_s}
        self.book.since = self.watcher.since
        if steps:
            fields |= {
                "step": steps[-1].step,
                "loss": steps[-1].loss,
                "iteration_s": self.book.iteration_s,
                "expected_s": self.book.expected_s,
                "costs": self.book.costs(),
            }
        fields["health"] = self.health()
        return fields

    def health(self) -> list[dict[str, Any]]:
        """Return how each rank is doing: its recent slowdown, and how long ago it was last heard."""
        slow, costs = self.watcher.slowdowns(), self.book.costs()["ranks"]
        dead = self.dead | self.fleet.lost()
        rows = []
        for row in self.run.devices:
            rank = row["rank"]
            works = rank in self.book.seats
            own = costs.get(str(rank))
            rows.append(
                {
                    "rank": rank,
                    "state": "dead" if rank in dead else "works" if works else "idle",
                    "slowdown": round(slow[rank], 3) if works and rank in slow else None,
                    "own_s": own["forward_s"] + own["backward_s"] if own else None,
                    "silent_s": round(self.fleet.silent_s(rank), 1),
                }
            )
        return rows

    def _hand_on_faults(self) -> None:
        for fault in take_injections(run=self.run, held=self.held):
            seconds = fault.seconds or (FLAP_S if fault.mode == "flap" else 0.0)
            try:
                self.fleet.inject(fault.rank, fault.mode, fault.factor, seconds)
            except ParallelError as error:
                log.warning("fault.refused", job=str(self.job.pk), reason=str(error))

    def measure_outcome(self, *, final: bool = False) -> None:
        """Hold what a plan predicted against what is measured, once there are enough iterations."""
        executed = self.helm.executed
        count = self.book.in_layout - SETTLE
        if executed is None or executed.reconfiguration_id is None:
            return
        if not (count >= MEASURED or (final and count >= 1)):
            return
        measured = self.book.iteration_s
        predicted = executed.predicted_s
        ratio = measured / predicted if measured and predicted else None
        found = {"iteration_s": measured, "predicted_iteration_s": predicted, "ratio": ratio,
                 "iterations": min(count, MEASURED)}  # fmt: skip
        with transaction.atomic():
            record_outcome(reconfiguration_id=executed.reconfiguration_id, measured=found)
            if executed.kind == "rebalance" and not final:
                # The incident goes on: what the policy did not let through is proposed from here.
                for verdict in Verdict.objects.filter(job=self.job, state=VerdictState.OPEN):
                    ring_recovery(verdict)
        self.helm.executed = None

    def _notice_hang(self) -> None:
        """Start anew where ranks beat but no iteration comes; a layout that is waited for is no hang."""
        if self.helm.is_waiting or self.helm.order is not None:
            self._moved_s = time.monotonic()
            return
        usual = self.book.iteration_s or self.book.expected_s or 0.0
        limit = max(HANGS_AFTER_S, HANGS_AFTER_ITERATIONS * usual)
        if time.monotonic() - self._moved_s > limit:
            message = f"no iteration for {limit:.0f} s although the ranks are alive"
            record_failure(kind="training.hang", job=self.job, message=message)
            raise StartAnew(message)
