"""The helm: carries out approved plans, and brings a run back on course when a rank is lost.

A layout is ordered, every rank reports, and only then the database says that the job runs in it. A rank that
dies meanwhile makes the order void: the recovery loop plans anew for what is left.
"""

import time
from typing import TYPE_CHECKING, Any

import structlog
from django.db import transaction

from cluster.services.leases import fence
from jobs.core.states import PENDING
from jobs.models import Reconfiguration, TrainingRun
from jobs.services.reconfigurations import begin, execute_done, execute_failed, supersede
from jobs.services.training_runs import approved_plan, ranks_back, rewind, set_layout
from journal.services import Fact
from telemetry.core.states import ACTIONABLE, VerdictKind, VerdictState
from telemetry.models import Verdict
from telemetry.services.recovery import ring_recovery, speeds_of
from telemetry.services.verdicts import clear_verdicts_of
from workers.trainer.parallel.errors import ParallelError
from workers.trainer.parallel.spec import plan_digest
from workers.training.orders import Order, left_out, working_in

if TYPE_CHECKING:
    from workers.training.crew import Crew

log = structlog.get_logger(__name__)
# A change that takes longer has failed; a start loads torch in every rank.
LONGEST_CHANGE_S, LONGEST_START_S = 120.0, 300.0
# After ranks gave up an iteration, so long is waited for somebody to be found dead.
ABANDONED_S = 12.0
# A rank that dies is started anew in its place so often; then the run goes back to its checkpoint.
MOST_REPAIRS = 3
# One that was left out is started anew after a rest that doubles every time, so often at most.
REST_S, MOST_RETURNS = 5.0, 3


class StartAnew(Exception):
    """All ranks have to be started anew from the last checkpoint."""


class Helm:
    """Which layout the ranks are in, or on their way to."""

    def __init__(self, crew: "Crew") -> None:
        self.crew = crew
        self.order: Order | None = None
        self.executed: Order | None = None
        self.is_waiting = False
        self.repairs = 0
        self._returns: dict[int, int] = {}
        self._rested_s: dict[int, float] = {}
        self._abandoned_s: float | None = None
        self.substate = "starting"
        self._watch_start()

    def _watch_start(self) -> None:
        """The fleet has ordered its first layout already."""
        fleet, run = self.crew.fleet, self.crew.run
        self.order = Order(fleet.epoch, run.layout, working_in(run.layout), kind="start")
        self.base = run.epoch - fleet.epoch

    def abandoned(self, event: dict[str, Any]) -> None:
        """Take note that a rank gave up an iteration or a change, because somebody did not answer."""
        if event["epoch"] == self.crew.fleet.epoch and self._abandoned_s is None:
            self._abandoned_s = time.monotonic()

    def steer(self) -> None:
        """Bring the present order forward, begin an approved plan, or help a run that cannot go on."""
        if self.order is not None:
            self.follow(self.order)
        if self.order is None and not self._begin_approved():
            self._help()
        if self.order is None:
            self._bring_back()

    def follow(self, order: Order) -> None:
        """Bring an order forward: it has failed, is void, has arrived, or takes its time."""
        lost = self.crew.fleet.lost() | self.crew.broken | self.crew.watcher.dead()
        first = order.kind == "start"
        if order.failure is not None:
            self._failed(order, order.failure)
        elif order.died(lost):
            self._void(order, order.died(lost))
        elif not order.missing:
            self._arrived(order)
        elif order.waited_s > (LONGEST_START_S if first else LONGEST_CHANGE_S):
            self._failed(order, f"rank {min(order.missing)} did not answer in time")
        if self.order is not None:
            self.substate = "starting" if first else "reconfiguring"

    def _arrived(self, order: Order) -> None:
        """All ranks work in the new layout: say so, together with what it took."""
        crew = self.crew
        log.info(
            "training.layout", job=str(crew.job.pk), kind=order.kind, step=order.step, restored=order.restored
        )
        # Who was dead before a start has a new process now, and is merely idle.
        known = {**order.plan, "dead": []} if order.kind == "start" else order.plan
        layout = {"replicas": order.plan["replicas"], **left_out(known, len(crew.run.devices))}
        fresh = order.kind != "rebalance"
        if fresh:
            crew.gather()
        crew.enter(layout, order.step, expected_s=order.predicted_s, fresh=fresh)
        epoch = self.base + order.epoch
        outcome = order.outcome()
        facts = [Fact("training.layout", {"epoch": epoch, "layout": layout, "step": order.step, **outcome})]
        with transaction.atomic():
            fence(crew.held)
            rewind(run=crew.run, held=crew.held, step=order.step, checkpointed=order.kind == "start")
            set_layout(run=crew.run, held=crew.held, epoch=epoch, layout=layout,
                       digest=plan_digest(order.plan), facts=facts)  # fmt: skip
            self._remember(order, layout)
            if fresh:
                clear_verdicts_of(job_id=crew.job.pk, reason=self._why_cleared(order))
            if order.reconfiguration_id is not None:
                execute_done(reconfiguration_id=order.reconfiguration_id, outcome=outcome)
        crew.run.epoch, crew.run.layout = epoch, layout
        self.executed = order if order.reconfiguration_id is not None else None
        self.order, self._abandoned_s, self.is_waiting = None, None, False
        self.substate = "training"

    @staticmethod
    def _why_cleared(order: Order) -> str:
        return {"repair": "its process was started anew"}.get(
            order.kind, "the job runs in another layout now"
        )

    def _remember(self, order: Order, layout: dict[str, Any]) -> None:
        """Keep the speeds of those left out, and the pause, for the next plan."""
        run = self.crew.run
        known = speeds_of(self.crew.job, run)
        out = {int(name[1:]) for name in [*layout["idle"], *layout["dead"]]}
        stored = TrainingRun.objects.values_list("facts", flat=True).get(pk=run.pk)
        facts = {**stored, "speeds": {str(r): s for r, s in known.items() if r in out and s < 1}}
        pause = order.outcome()["pause_s"]
        if order.reconfiguration_id is not None and pause is not None:
            facts["pause_s"] = pause
        run.facts = facts
        TrainingRun.objects.filter(pk=run.pk).update(facts=facts)

    def _failed(self, order: Order, reason: str) -> None:
        """Back to the layout before, in which all ranks still hold their state; if that fails, start anew."""
        crew = self.crew
        log.warning("training.change_failed", job=str(crew.job.pk), reason=reason)
        if order.kind in ("start", "return"):
            raise StartAnew(reason)
        if order.reconfiguration_id is not None:
            with transaction.atomic():
                fence(crew.held)
                execute_failed(
                    reconfiguration_id=order.reconfiguration_id, reason=reason, outcome=order.outcome()
                )
        self.order = None
        self._order(crew.run.layout, "return")

    def _void(self, order: Order, died: set[int]) -> None:
        """A rank that the layout needs is gone: the recovery loop plans for the others."""
        crew = self.crew
        if order.kind == "start":
            raise StartAnew(f"rank {min(died)} died while it started")
        with transaction.atomic():
            fence(crew.held)
            if order.reconfiguration_id is not None:
                supersede(job_id=crew.job.pk, reason=f"rank {min(died)} died during the change")
        self.order = None
        self._forget_answers()

    def _begin_approved(self) -> bool:
        """Begin the plan that was approved, if there is one; it is checked once more."""
        crew = self.crew
        row = approved_plan(crew.job.pk)
        if row is None:
            return False
        with transaction.atomic():
            fence(crew.held)
            begun = begin(reconfiguration_id=row.pk)
        if begun is None:
            return False
        try:
            self._order(begun.plan, begun.kind, begun)
        except ParallelError as error:
            with transaction.atomic():
                fence(crew.held)
                execute_failed(reconfiguration_id=begun.pk, reason=str(error))
            return False
        return True

    def _order(self, plan: dict[str, Any], kind: str, row: Reconfiguration | None = None) -> None:
        crew = self.crew
        working = working_in(plan)
        gone = (crew.watcher.dead() | crew.broken | crew.fleet.lost()) - working
        for rank in sorted((crew.watcher.dead() | crew.broken) & working):
            crew.fleet.give_up(rank)  # frozen or broken: another process takes its place
        epoch = crew.fleet.reconfigure({"replicas": plan["replicas"]}, without=gone)
        for rank in working & (crew.watcher.dead() | crew.broken):
            crew.watcher.forget(rank)
        crew.broken -= working
        self.order = Order(
            epoch, plan, working,
            reconfiguration_id=row.pk if row else None,
            predicted_s=row.predicted_iteration_s if row else crew.book.expected_s,
            kind=kind,
        )  # fmt: skip
        self.executed, self._abandoned_s = None, None
        self.substate = "reconfiguring"

    def _help(self) -> None:
        """Where a rank is dead: wait for the plan; without one, start the rank anew in its place."""
        crew = self.crew
        dead = crew.dead
        self.is_waiting = bool(dead)
        if not dead:
            self.substate = "training"
            if self._abandoned_s is not None and time.monotonic() - self._abandoned_s > ABANDONED_S:
                self._repair("ranks lost touch with each other")
            return
        pending = Reconfiguration.objects.filter(job=crew.job, state__in=PENDING).first()
        words = ", ".join(map(str, sorted(dead)))
        if pending is not None:
            self.substate = f"rank {words} stopped; waiting for approval"
            return
        self.substate = f"rank {words} stopped; planning"
        stops = Verdict.objects.filter(job=crew.job, state=VerdictState.OPEN, kind=VerdictKind.FAIL_STOP)
        if stops.exists() and not stops.filter(planned_at__isnull=True).exists():
            self._repair(f"rank {words} stopped and no plan does without")

    def _repair(self, reason: str) -> None:
        """Order the present layout once more; whoever is gone from it is started anew."""
        self.repairs += 1
        if self.repairs > MOST_REPAIRS:
            raise StartAnew(reason)
        log.warning("training.repair", job=str(self.crew.job.pk), reason=reason)
        self._order(self.crew.run.layout, "repair")

    def _bring_back(self) -> None:
        """Start ranks anew that died and were left out, while the others train.

        Once they are up they are idle, and the recovery loop looks whether a layout with them is better.
        """
        crew, now_s = self.crew, time.monotonic()
        out = {int(name[1:]) for name in crew.run.layout.get("dead", [])}
        for rank in sorted(out & crew.fleet.lost()):
            began_s, times = self._rested_s.setdefault(rank, now_s), self._returns.get(rank, 0)
            if times < MOST_RETURNS and now_s - began_s >= REST_S * 2.0**times:
                self._returns[rank] = times + 1
                del self._rested_s[rank]
                crew.broken.discard(rank)
                crew.fleet.admit(rank)
        back = sorted(rank for rank in out if crew.fleet.ready(rank))
        if back:
            log.info("training.ranks_back", job=str(crew.job.pk), ranks=back)
            crew.run.layout = ranks_back(run=crew.run, held=crew.held, ranks=back)

    def _forget_answers(self) -> None:
        """Have the recovery loop look at every open incident again."""
        rows = Verdict.objects.filter(
            job=self.crew.job, state=VerdictState.OPEN, kind__in=[kind.value for kind in ACTIONABLE]
        )
        rows.update(planned_at=None)
        for verdict in rows:
            ring_recovery(verdict)
