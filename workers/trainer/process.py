"""A device process: takes orders through a pipe, runs them, sends events back.

Messages to it: ("order", order), ("verdict", run, Verdict), ("pending", run, Verdict), ("stop", run),
("threads", run, count), ("meet", run), None to leave. Messages from it: Events, ("beat", run) while batches
go by, ("meeting", run, port) where the ranks of a target meet in answer to "meet", ("parted", run, reason)
where a rank lost the others, ("broken", run, reason) where an order could not be carried out at all.
"""

import gc
import signal
import statistics
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch

from tuning.core.workload import Workload
from workers.trainer.container import run_container
from workers.trainer.loading import load_workload
from workers.trainer.orders import (
    ContainerOrder,
    Parted,
    ProfileOrder,
    Setting,
    Stopped,
    TargetOrder,
    TransferOrder,
    Verdict,
)
from workers.trainer.profiling import run_profile
from workers.trainer.ranks.meeting import open_meeting
from workers.trainer.solo import describe_error
from workers.trainer.target import train_target
from workers.trainer.transfer import check_transfer

BEAT_S = 2.0
PACE_BATCHES = 8
PACE_GAIN = 0.9

Order = ContainerOrder | TargetOrder | ProfileOrder | TransferOrder


@dataclass
class Pace:
    """Seconds between batches, so that more threads are kept only where they make a run faster.

    On a machine that others use as well, threads that wait for each other can be many times slower than one.
    """

    last_s: float | None = None
    intervals: list[float] = field(default_factory=list)
    before: float | None = None
    threads_before: int = 1

    def batch(self, now_s: float) -> None:
        """Note that a batch begins; give up more threads that have not paid."""
        if self.last_s is not None:
            self.intervals = [*self.intervals[1 - PACE_BATCHES :], now_s - self.last_s]
        self.last_s = now_s
        if self.before is not None and len(self.intervals) >= PACE_BATCHES:
            if statistics.median(self.intervals) > PACE_GAIN * self.before:
                torch.set_num_threads(self.threads_before)
            self.before = None

    def try_threads(self, count: int) -> None:
        """Use this many threads, on trial where there is something to compare with."""
        if self.intervals and count > torch.get_num_threads():
            self.before, self.threads_before = statistics.median(self.intervals), torch.get_num_threads()
            self.intervals, self.last_s = [], None
        torch.set_num_threads(count)


@dataclass
class PipeControl:
    """A driver at the other end of a pipe."""

    pipe: Connection
    run: str
    stop: bool = False
    asked: Verdict = field(default_factory=Verdict)
    ruling: Verdict | None = None
    pace: Pace = field(default_factory=Pace)
    beat_s: float = field(default_factory=time.monotonic)

    def verdict(self, epoch: int) -> Verdict:
        """Wait for the verdict on a rung."""
        while self.ruling is None:
            self._take(self.pipe.recv())
            if self.stop:
                raise Stopped
        ruling, self.ruling = self.ruling, None
        return self._merged(ruling)

    def pending(self) -> Verdict:
        """Return what was asked for since the last epoch."""
        while self.pipe.poll():
            self._take(self.pipe.recv())
        if self.stop:
            raise Stopped
        return self._merged(Verdict())

    def stopped(self) -> bool:
        """Return whether the run must end at once; tells the driver now and then that it is alive."""
        while self.pipe.poll():
            self._take(self.pipe.recv())
        now = time.monotonic()
        self.pace.batch(now)
        if now - self.beat_s > BEAT_S:
            self.beat_s = now
            self.pipe.send(("beat", self.run))
        return self.stop

    def _merged(self, ruling: Verdict) -> Verdict:
        asked, self.asked = self.asked, Verdict()
        return Verdict((*ruling.stop, *asked.stop), ruling.pause or asked.pause)

    def _take(self, message: Any) -> None:
        if message is None:
            raise EOFError("the driver closed the pipe")
        kind, run, *rest = message
        if run != self.run:
            return  # about a run that is over
        if kind == "stop":
            self.stop = True
        elif kind == "verdict":
            self.ruling = rest[0]
        elif kind == "threads":
            self.pace.try_threads(rest[0])
        elif kind == "pending":
            self.asked = Verdict((*self.asked.stop, *rest[0].stop), self.asked.pause or rest[0].pause)


def serve(pipe: Connection, workload: Workload | None, threads: int | None) -> None:
    """Carry out orders until the pipe closes. The whole process belongs to this function."""
    # an interrupt is the driver's business: it wants the models that are half trained
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # what a forked process inherits is the driver's: the connections and threads of its garbage are not here
    gc.freeze()
    if threads:
        torch.set_num_threads(threads)
    meeting: Any = None  # lives as long as the target whose ranks meet there
    try:
        while True:
            message = pipe.recv()
            if message is None:
                return
            if message[0] == "meet":
                meeting = open_meeting()
                pipe.send(("meeting", message[1], meeting.port))
            elif message[0] == "order":
                _carry_out(message[1], pipe, workload)
    except (EOFError, BrokenPipeError, OSError):
        return  # the driver is gone, and with it the reason to train


def _carry_out(order: Order, pipe: Connection, workload: Workload | None) -> None:
    try:
        used = workload or _loaded(order.setting)
        pipe.send(_run(order, pipe, used))
    except (EOFError, BrokenPipeError):
        raise
    except Parted as error:
        pipe.send(("parted", order.run, str(error)))
    except Exception as error:
        pipe.send(("broken", order.run, describe_error(error)))


def _run(order: Order, pipe: Connection, workload: Workload) -> Any:
    control = PipeControl(pipe, order.run)
    if isinstance(order, ProfileOrder):
        return run_profile(order, workload)
    if isinstance(order, TargetOrder):
        return train_target(order, pipe.send, control, workload)
    if isinstance(order, TransferOrder):
        return check_transfer(order, control, workload)
    return run_container(order, pipe.send, control, workload)


_LOADED: dict[str, Workload] = {}


def _loaded(setting: Setting) -> Workload:
    key = f"{setting.workload} {sorted(setting.parameters.items())}"
    if key not in _LOADED:
        _LOADED[key] = load_workload(setting.workload, setting.parameters)
    return _LOADED[key]
