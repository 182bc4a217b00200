"""Guests: processes of their own group that train in bubbles; started, signalled and ended from here."""

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from workers.squeezer.errors import SqueezerError
from workers.squeezer.gate import FREE, PAUSED, STARTING, Gate
from workers.squeezer.processes import cpu_ns, resident_bytes

MODULE = "workers.trainer.bubbles.guest"
CLASSES = ("idle", "nice", "normal")

Hear = Callable[[str, list[Any]], None]  # takes a guest's name and what it has sent


@dataclass(frozen=True)
class GuestOrder:
    """A container to be trained in the bubbles of a board.

    Attributes:
        order: what the trainer is told, a `ContainerOrder` for instance; None to say it later.
        size: number of fused trials.
        step_s: profiled seconds of a step, until the guest has made enough steps to be measured.
        held_bytes: profiled bytes.
        limit_bytes: memory at which the guest is ended; 0 for none.
        scheduling: idle (the lowest class), nice or normal.
        module: the program; it takes the arguments that `Guest` gives and obeys the gate or signals.
    """

    name: str
    board: str
    order: Any = None
    size: int = 1
    step_s: float = 0.0
    held_bytes: int = 0
    limit_bytes: int = 0
    scheduling: str = "idle"
    module: str = MODULE
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse what makes no sense."""
        if self.scheduling not in CLASSES:
            raise SqueezerError(f"scheduling: {self.scheduling!r} is none of {', '.join(CLASSES)}")
        if self.size < 1:
            raise SqueezerError(f"size: is {self.size}, must be at least 1")


class Guest:
    """One guest. Sending and receiving happen in threads, because a stopped guest answers nobody.

    `fitted_s` is when a whole step of it last fitted a bubble, or its order came, in monotonic seconds.
    """

    def __init__(self, order: GuestOrder, folder: Path, core: int, hear: Hear) -> None:
        order.check()
        self.order, self.name = order, order.name
        self.gate = Gate(folder / f"{order.name}.gate")
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", order.module, "--gate", str(self.gate.page.path)]
        command += ["--board", order.board, "--pipe", str(theirs.fileno()), "--core", str(core)]
        command += ["--scheduling", order.scheduling, "--parent", str(os.getpid()), *order.arguments]
        self.process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            process_group=0,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", **order.environment},
        )
        theirs.close()
        self.pid = self.process.pid
        self.stopped = self.held = self.idle = False
        self.run: str | None = None
        self.size = order.size
        self.granted_ns = 0
        self.leave_by_s: float | None = None
        self.told: str | None = None
        self.fitted_s = time.monotonic()
        self._points_mark = self._points_cpu_ns = 0
        self._pipe = Connection(ours.detach())
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for body in (self._send, lambda: self._receive(hear)):
            threading.Thread(target=body, name=f"{order.name} pipe", daemon=True).start()
        if order.order is not None:
            self.send(("order", order.order))

    def send(self, message: Any) -> None:
        """Send a message, now or when the guest reads again."""
        if message[0] == "order":
            self.run, self.idle, self.fitted_s = message[1].run, False, time.monotonic()
            self.size = len(getattr(message[1], "members", ())) or self.order.size
        self._out.put(message)

    def rest(self) -> None:
        """Its run is over; it needs no bubble until the next order."""
        self.run, self.idle = None, True

    @property
    def starting(self) -> bool:
        """Whether it has not come to a pause point yet."""
        return self.gate.state == STARTING

    @property
    def paused(self) -> bool:
        """Whether it waits at its gate."""
        return self.gate.state == PAUSED

    def stop(self) -> None:
        """Stop all of its group by signal."""
        if not self.stopped:
            self.stopped = self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo `stop`."""
        if self.stopped:
            self._signal(signal.SIGCONT)
            self.stopped = False

    def set_free(self) -> None:
        """Let it run outside bubbles: nobody else wants the device."""
        self.gate.permit(FREE)
        self.go_on()

    def end(self) -> None:
        """End all of its group by force, stopped or not."""
        self._signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        with contextlib.suppress(OSError):
            self.gate.page.path.unlink()

    def in_lowest_class(self) -> bool:
        """Whether it runs only when its core has nothing else to do."""
        try:
            return os.sched_getscheduler(self.pid) == os.SCHED_IDLE
        except (AttributeError, OSError):
            return False

    def resident_bytes(self) -> int:
        """Memory it occupies now."""
        return resident_bytes(self.pid)

    def step_s(self) -> float:
        """Processor seconds of a step: what the guest measures, before that as profiled."""
        return self.gate.step_s or self.order.step_s

    def spun_s(self) -> float:
        """Processor seconds since it was last seen at a pause point."""
        points, now_ns = self.gate.points, cpu_ns(self.pid)
        if points != self._points_mark:
            self._points_mark, self._points_cpu_ns = points, now_ns
        return (now_ns - self._points_cpu_ns) / 1e9

    def how_it_ended(self) -> str | None:
        """Words for people; None while it lives."""
        code = self.process.poll()
        if code is None:
            return None
        if self.told is not None:
            return self.told
        if code < 0:
            return f"its process was killed by {signal.Signals(-code).name}"
        return "it left" if code == 0 else f"its process exited with code {code}"

    def _signal(self, number: int) -> bool:
        # the group exists as long as its leader is not waited for
        if self.process.poll() is not None:
            return False
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def _send(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._pipe.send(self._out.get())

    def _receive(self, hear: Hear) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = self._pipe.recv()
                hear(self.name, message if isinstance(message, list) else [message])
