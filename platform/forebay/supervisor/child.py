"""A supervised child: started, watched, restarted with back-off, stopped."""

import contextlib
import os
import signal
import subprocess
import time
from enum import StrEnum
from pathlib import Path

from forebay.supervisor.part import Part
from forebay.supervisor.process import Identity, identify

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
STEADY_S = 60.0  # a child that ran this long starts again at once when it dies
HEALTH_INTERVAL_S = 5.0
UNHEALTHY_S = 30.0
MOST_TRIES_ONCE = 5


class ChildState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting to restart"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class Child:
    """Holds one part's process; `tick` does whatever is due now and says what happened."""

    def __init__(self, part: Part, log: Path) -> None:
        self.part = part
        self.log = log
        self.state = ChildState.STOPPED
        self.process: subprocess.Popen[bytes] | None = None
        self.identity: Identity | None = None
        self.restarts = 0
        self.failures = 0
        self._started = self._due = self._asked = self._well = 0.0

    def start(self, now: float) -> None:
        """Start the process."""
        with open(self.log, "ab") as log:
            self.process = self.part.spawn(log)
        self.identity = identify(self.process.pid)
        self.state = ChildState.STARTING
        self._started = self._well = now

    def tick(self, now: float) -> str | None:
        """Notice an exit, readiness or sickness; restart when it is time. Returns news, if any."""
        if self.state == ChildState.WAITING and now >= self._due:
            self.restarts += 1
            self.start(now)
            return None
        if self.state not in {ChildState.STARTING, ChildState.READY} or self.process is None:
            return None
        if (code := self.process.poll()) is not None:
            return self._exited(code, now)
        if self.state == ChildState.STARTING and self.part.is_ready():
            self.state = ChildState.READY
            self._well = now
            return f"ready after {now - self._started:.1f} s" if self.restarts else None
        return self._examine(now)

    def _exited(self, code: int, now: float) -> str:
        self.kill_group()  # a killed parent leaves its own children behind
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if self.part.once and code == 0:
            self.state = ChildState.DONE
            return "done"
        if self.part.once and self.failures + 1 >= MOST_TRIES_ONCE:
            self.state = ChildState.FAILED
            return f"ended with {how}, the {MOST_TRIES_ONCE}th time; see {self.log}"
        ran = now - self._started
        self.failures = 0 if ran >= STEADY_S else self.failures + 1
        delay = 0.0 if self.failures == 0 else min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (self.failures - 1))
        self.state = ChildState.WAITING
        self._due = now + delay
        return f"ended with {how} after {ran:.1f} s; starting again in {delay:.1f} s"

    def _examine(self, now: float) -> str | None:
        if self.part.is_healthy is None or now - self._asked < HEALTH_INTERVAL_S:
            return None
        self._asked = now
        if self.part.is_healthy():
            self._well = now
        elif now - self._well > UNHEALTHY_S:
            self.kill_group()
            return f"did not answer for {now - self._well:.0f} s and was killed"
        return None

    def kill_group(self) -> None:
        """SIGKILL for everything left of the process's own group."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


def stop_together(children: list[Child]) -> None:
    """Stop children side by side, each by its own signals, the stubborn by force."""
    stopping = {child: stop_plan(child, time.monotonic()) for child in children if child.is_running()}
    while stopping:
        now = time.monotonic()
        for child, plan in list(stopping.items()):
            if not child.is_running():
                child.kill_group()
                del stopping[child]
                continue
            while plan and plan[0][0] <= now:
                _, number = plan.pop(0)
                assert child.process is not None
                if number == signal.SIGKILL:
                    child.kill_group()
                else:
                    child.process.send_signal(number)
        time.sleep(0.02)
    for child in children:
        child.state = ChildState.STOPPED


def stop_plan(child: Child, now: float) -> list[tuple[float, signal.Signals]]:
    """When each of the part's signals is due, SIGKILL last."""
    plan = []
    for number, seconds in child.part.stop:
        plan.append((now, number))
        now += seconds
    return [*plan, (now, signal.SIGKILL)]
