"""The driver of one training job: starts its ranks, listens, writes, judges, and changes the layout.

Whatever it writes is fenced by its lease. A driver that dies takes its ranks with it (they end when their
store is gone); the next one starts them anew from the last checkpoint, and what came after that checkpoint
is forgotten and done again with the same samples.
"""

import os
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction

from cluster.core.errors import LeaseLost
from cluster.models import Device
from cluster.services.leases import release_all, take_lease
from jobs.core.states import JobState
from jobs.models import Job, TrainingRun
from jobs.services.coordination import coordinate
from jobs.services.grants import grant_of, stopped
from jobs.services.reconfigurations import supersede
from jobs.services.training_runs import claim_run, end_run, set_substate
from telemetry.services.verdicts import clear_verdicts_of
from workers.trainer.parallel.errors import ParallelError
from workers.trainer.parallel.fleet import Fleet, Processes
from workers.training.crew import Crew, Ended, StartAnew
from workers.training.launch import processes_for, ranks_on, run_spec
from workers.training.lending import with_boards
from workers.tuner.heartbeat import Heartbeat
from workers.tuner.shutdown import stopping

log = structlog.get_logger(__name__)
LISTEN_S = 0.1
TURN_S = 0.5
DATABASE_RETRY_S = 0.5
# How long a checkpoint may take that is asked for because the job has to leave.
LEAVE_S = 30.0
# How often ranks may be started anew from the last checkpoint without one new checkpoint between.
MOST_STARTS = 5
T = TypeVar("T")
MakeProcesses = Callable[[list[dict[str, Any]]], Processes]


def drive_training(job_id: UUID, make_processes: MakeProcesses = processes_for) -> None:
    """Drive a training job if nobody else does."""
    owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
    held = take_lease(name=f"training:{job_id}", owner=owner, seconds=settings.LEASE_SECONDS)
    if held is None:
        return
    try:
        with Heartbeat(held, settings.LEASE_SECONDS) as heartbeat:
            devices = _granted(job_id)
            if devices:
                Driver(job_id, heartbeat, devices, make_processes).run()
    except LeaseLost:
        log.warning("driver.lease_lost", job=str(job_id))
    finally:
        release_all(owner)
        connection.close()


def _granted(job_id: UUID) -> list[Device]:
    """Return the devices that the queue has given to the job; none while it waits, or has to leave."""
    grant = grant_of(job_id)
    if grant is None:
        coordinate()  # anybody may tick, and a job that is rung for early need not wait
        grant = grant_of(job_id)
    if grant is not None and grant.stopping:
        stopped(job_id)
        return []
    return list(grant.devices) if grant else []


class Driver:
    """One driver's hold on a training job."""

    def __init__(
        self, job_id: UUID, heartbeat: Heartbeat, devices: list[Device], make_processes: MakeProcesses
    ) -> None:
        self.job_id, self.heartbeat, self.held = job_id, heartbeat, heartbeat.held
        self.devices, self.make_processes = devices, make_processes
        self.began = time.monotonic()

    def run(self) -> None:
        """Start ranks, as often as it takes, until the job is over or has to leave."""
        starts, reached = 0, -1
        while not stopping.is_set():
            claimed = self._keep_database(self._claim)
            if claimed is None:
                return
            job, run = claimed
            starts = starts + 1 if run.step <= reached else 1
            reached = run.step
            if starts > MOST_STARTS:
                reason = f"its ranks were started {MOST_STARTS} times from step {run.step} and got no further"
                self._keep_database(lambda r=run, w=reason: self._end(r, JobState.FAILED, w))  # type: ignore[misc]
                return
            if self._drive(job, run):
                return
        self._keep_database(self._let_go)

    def _claim(self) -> tuple[Job, TrainingRun] | None:
        job = Job.objects.get(pk=self.job_id)
        ranks = ranks_on(self.devices, job.spec["devices"])
        claimed = claim_run(job_id=self.job_id, held=self.held, devices=ranks)
        if claimed is not None:
            clear_verdicts_of(job_id=self.job_id, reason="the ranks were started anew")
        return claimed

    def _drive(self, job: Job, run: TrainingRun) -> bool:
        """Drive the ranks of one start; return whether that was all."""
        fleet = None
        try:
            fleet = Fleet(run_spec(job, run), self.make_processes(with_boards(job, run.devices)))
            fleet.start()
            crew = Crew(job, run, self.held, fleet)
            return self._listen(crew)
        except StartAnew as why:
            log.warning("training.start_anew", job=str(job.pk), reason=str(why))
            self._keep_database(
                lambda: set_substate(job_id=job.pk, held=self.held, substate="starting from a checkpoint")
            )
            return False
        except ParallelError as error:
            self._keep_database(lambda e=str(error): self._end(run, JobState.FAILED, e))  # type: ignore[misc]
            return True
        finally:
            if fleet is not None:
                fleet.stop()

    def _listen(self, crew: Crew) -> bool:
        written = 0.0
        while True:
            self.heartbeat.check()
            crew.listen()
            if crew.ended is None and time.monotonic() - written < TURN_S:
                time.sleep(LISTEN_S)
                continue
            written = time.monotonic()
            self._keep_database(crew.turn)
            if crew.ended is not None:
                self._keep_database(lambda: self._close(crew, crew.ended))
                return True
            if stopping.is_set():
                self._checkpoint(crew)
                return False
            if self._keep_database(lambda: self._must_leave(crew)):
                return True

    def _must_leave(self, crew: Crew) -> bool:
        """Leave a job that was cancelled, or whose devices are wanted elsewhere, with a checkpoint."""
        cancelled = Job.objects.filter(pk=self.job_id, cancel_asked_at__isnull=False).exists()
        grant = grant_of(self.job_id)
        taken = grant is None or grant.stopping
        if not cancelled and not taken:
            return False
        self._checkpoint(crew)
        if cancelled:
            self._end(crew.run, JobState.CANCELLED, "")
        else:
            crew.fleet.stop()
            clear_verdicts_of(job_id=self.job_id, reason="the job left its devices")
            supersede(job_id=self.job_id, reason="the job left its devices")
            stopped(self.job_id)
        return True

    def _checkpoint(self, crew: Crew) -> None:
        """Have the ranks write a checkpoint, if they can within a moment, and write down that they did."""
        if crew.can_checkpoint:
            before = crew.checkpoint
            crew.fleet.checkpoint()
            deadline = time.monotonic() + LEAVE_S
            while time.monotonic() < deadline and crew.ended is None:
                crew.listen()
                if crew.can_write_checkpoint and crew.checkpoint != before:
                    break
                if crew.dead:
                    break
                time.sleep(LISTEN_S)
        self._keep_database(crew.turn)

    def _close(self, crew: Crew, ended: Ended | None) -> None:
        assert ended is not None
        crew.measure_outcome(final=True)
        self._end(crew.run, ended.state, ended.reason, ended.model)

    def _end(self, run: TrainingRun, state: JobState, reason: str, model: Any = None) -> None:
        with transaction.atomic():
            end_run(run=run, held=self.held, state=state, reason=reason, model=model)
            clear_verdicts_of(job_id=self.job_id, reason=f"the job is {state}")

    def _let_go(self) -> None:
        """Have another driver rung for: this one is told to stop."""
        Job.objects.filter(pk=self.job_id, state=JobState.RUNNING).update(woken_at=None)

    def _keep_database(self, work: Callable[[], T]) -> T:
        """Do work that needs the database, waiting for it to come back as long as that takes."""
        while True:
            self.heartbeat.check()
            try:
                return work()
            except (OperationalError, InterfaceError) as error:
                log.warning("driver.database_away", error=str(error).splitlines()[0])
                connection.close()
                time.sleep(DATABASE_RETRY_S)
