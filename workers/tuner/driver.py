"""The driver of one study: turns of listen, decide, write, act, until the brain says it is over.

Each turn is written in one transaction that is fenced by the lease, before anything is started. A driver
that dies is followed by another, which replays the log and declares lost what ran under the first.
"""

import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from cluster.core.errors import LeaseLost
from cluster.services.leases import release_all, take_lease
from jobs.models import Job
from jobs.services.coordination import coordinate
from jobs.services.grants import grant_of, stopped
from telemetry.services import record_failure
from tuning.core.errors import TuningError
from tuning.core.study.actions import (
    Action,
    CheckTransfer,
    Finish,
    Proceed,
    Profile,
    StartContainer,
    StartTarget,
    StopRun,
    StopTrials,
)
from tuning.core.study.events import Cut, DevicesChanged, Event, RoomChanged, RunLost, TransferWanted
from tuning.services.driving import (
    Driving,
    answer_transfer_wish,
    claim_study,
    fail_study,
    let_go,
    note,
    set_substate,
    take_up,
    turn_written,
    write_turn,
)
from workers.tuner.bubbles import ONLY, BubbleDevices, bubbles_first, tell_samples
from workers.tuner.bundles import Bundles
from workers.tuner.devices import StudyDevices
from workers.tuner.heartbeat import Heartbeat
from workers.tuner.runner import RayRunner
from workers.tuner.shutdown import stopping

log = structlog.get_logger(__name__)
LISTEN_S = 0.5
# How often devices and a wish to cancel are looked at; each look is a handful of queries.
LOOK_AROUND_S = 1.0
DATABASE_RETRY_S = 0.5
T = TypeVar("T")
Start = StartContainer | StartTarget | Profile | CheckTransfer


def drive_study(job_id: UUID) -> None:
    """Drive a study if nobody else does."""
    owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
    held = take_lease(name=f"study:{job_id}", owner=owner, seconds=settings.LEASE_SECONDS)
    if held is None:
        return
    try:
        with Heartbeat(held, settings.LEASE_SECONDS) as heartbeat:
            if grant_of(job_id) is None:
                coordinate()  # anybody may tick, and a study that is rung for early need not wait
            job = claim_study(job_id=job_id, held=held)
            if job is not None:
                _drive(job, heartbeat)
    except LeaseLost:
        log.warning("driver.lease_lost", job=str(job_id))
    finally:
        release_all(owner)
        connection.close()


def _drive(job: Job, heartbeat: Heartbeat) -> None:
    held = heartbeat.held
    runner = RayRunner(job, silence_s=settings.TRIAL_SILENCE_S)
    try:
        grant = grant_of(job.pk)
        if grant is not None and not grant.stopping:
            runner.warm({str(device): device for device in grant.devices})
        facts = None if job.study.facts else runner.facts()
        driving = take_up(job=job, held=held, facts=facts)
        Driver(driving, runner, heartbeat).run()
    except TuningError as error:
        fail_study(job_id=job.pk, held=held, reason=str(error))
    finally:
        runner.close()


class Driver:
    """One driver's hold on a study."""

    def __init__(self, driving: Driving, runner: RayRunner, heartbeat: Heartbeat) -> None:
        self.driving, self.runner, self.heartbeat = driving, runner, heartbeat
        self.devices = StudyDevices(driving.job)
        self.bundles = Bundles(driving.job)
        self.bubbles = BubbleDevices(driving.job, heartbeat.held.owner, settings.LEASE_SECONDS)
        self.began = time.monotonic()
        self.looked = 0.0
        self.labels: tuple[str, ...] = ()
        self.substate = ""
        self.asked_to_leave: dict[str, float] = {}  # run -> when it was asked to pause

    @property
    def elapsed_s(self) -> float:
        """Seconds the study has been worked on, by this driver and those before it."""
        return self.driving.study.elapsed_s + time.monotonic() - self.began

    def run(self) -> None:
        """Take turns until the study is over."""
        brain = self.driving.brain
        gone: list[Event] = [
            RunLost(run, self.elapsed_s, "its driver was lost") for run in brain.active_runs()
        ]
        finish = self._turn(gone)
        while finish is None and not stopping.is_set() and not self._preempted():
            finish = self._turn(self.runner.listen(LISTEN_S, self.elapsed_s))
        if finish is None and self._preempted():
            self._keep_database(lambda: stopped(self.driving.job.pk))
        elif finish is None:
            self._keep_database(lambda: let_go(job=self.driving.job))

    def _preempted(self) -> bool:
        """Whether the study has to leave and has: nothing of it runs, and all of it is written down."""
        return self.devices.stopping and not self.driving.brain.active_runs()

    def _turn(self, events: list[Event]) -> Finish | None:
        self.heartbeat.check()
        driving, brain = self.driving, self.driving.brain
        events = [*events, *self._keep_database(self._circumstances)]
        for event in events:
            note(driving, event.to_json())
            brain.apply(event)
        now_s = self.elapsed_s
        free = bubbles_first(set(self.devices.labels) - brain.state.busy_devices())
        before = (len(brain.trials), brain.state.ended_count)
        actions = brain.decide(now_s, free)
        if not events and not actions and before == (len(brain.trials), brain.state.ended_count):
            return None
        note(driving, {"decide": now_s, "free": free})
        finish = next((action for action in actions if isinstance(action, Finish)), None)
        self._keep_database(
            lambda: write_turn(driving, elapsed_s=now_s, labels=self.devices.labels, finish=finish)
        )
        turn_written(driving)
        self._report_losses(events)
        for action in actions:
            self._act(action, free)
        return finish

    def _circumstances(self) -> list[Event]:
        """Return what changed around the study: devices, a wish to cancel."""
        if time.monotonic() - self.looked < LOOK_AROUND_S:
            return []
        self.looked = time.monotonic()
        brain = self.driving.brain
        runs, busy = {run: brain.devices_of(run) for run in brain.active_runs()}, brain.state.busy_devices()
        given = self.devices.look(busy, partial(self.bundles.releases, brain))
        self.devices.make_room([d for target in brain.state.running_targets() for d in target.beside])
        for label in given + self.bubbles.look(busy):
            self.runner.leave(label)
        self.devices.add(self.bubbles.labels, self.bubbles.leaving)
        if self.bubbles.samples_due():
            tell_samples(self.driving.job, brain, self.devices.labels, self.runner.samples())
        labels = tuple(sorted(self.devices.labels))
        found: list[Event] = []
        if (rooms := self.bubbles.rooms_changed()) is not None:
            found.append(RoomChanged(rooms))
        if labels != self.labels:
            self.runner.warm(self.devices.labels)
            self.labels = labels
            found.append(DevicesChanged(labels))
        found += self._leave({run: gone for run, held in runs.items() if (gone := set(held) - set(labels))})
        if self.driving.brain.state.cut is None and self._cancel_asked():
            found.append(Cut("cancelled"))
        if answer_transfer_wish(job=self.driving.job):
            found.append(TransferWanted())
        self._tell_substate()
        return found

    def _leave(self, runs: dict[str, set[str]]) -> list[Event]:
        """Ask runs that lose some of their devices to pause, and end those that have not for too long."""
        now = time.monotonic()
        self.asked_to_leave = {run: at for run, at in self.asked_to_leave.items() if run in runs}
        lost: list[Event] = []
        for run, gone in runs.items():
            if run not in self.asked_to_leave:
                self.asked_to_leave[run] = now
                self.runner.tell(StopRun(run, pause=True))
            waited_s = now - self.asked_to_leave[run]
            if gone <= set(self.devices.leaving) and waited_s < settings.PREEMPTION_GRACE_S:
                continue
            self.runner.kill(run)
            names = ", ".join(sorted(gone))
            lost.append(RunLost(run, self.elapsed_s, f"the device {names} was taken back", taken=True))
        return lost

    def _tell_substate(self) -> None:
        if self.devices.stopping:
            substate = "leaving its devices"
        elif not self.labels:
            only = self.driving.job.spec.get("bubbles") == ONLY
            substate = "waiting for bubbles" if only else "waiting for a device"
        else:
            searching = not self.driving.brain.state.search_over()
            substate = "searching" if searching else "training targets"
        if substate != self.substate:
            self.substate = substate
            set_substate(job=self.driving.job, substate=substate)

    def _cancel_asked(self) -> bool:
        return Job.objects.filter(pk=self.driving.job.pk, cancel_asked_at__isnull=False).exists()

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

    def _report_losses(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, RunLost) and not event.taken:
                record_failure(kind="run.lost", job=self.driving.job, message=f"{event.run}: {event.reason}")

    def _act(self, action: Action, free: list[str]) -> None:
        if isinstance(action, StartContainer):
            self._keep_database(
                lambda: self.bundles.fitted(
                    self.driving.brain, action.run, action.device, len(action.members)
                )
            )
        elif isinstance(action, StartTarget):
            self._keep_database(lambda: self.bundles.widened(self.driving.brain, action))
        elif (
            isinstance(action, StopRun) and action.pause and action.run in self.driving.brain.state.containers
        ):
            self._keep_database(lambda: self.bundles.split(self.driving.brain, action.run, 1 + len(free)))
        if isinstance(action, Start):
            self.runner.start(action, self.driving.brain, self.devices.labels, self.elapsed_s)
        elif isinstance(action, Proceed | StopTrials | StopRun):
            self.runner.tell(action)
