"""Faults a rank suffers on request, for demonstrations and tests: real ones, in the rank's own process."""

import os
import signal
import threading
import time

from workers.trainer.parallel.errors import ImpossibleRun

MODES = ("slow", "stop", "flap", "stall", "none")
LARGEST_FACTOR = 100.0


class Fault:
    """What is wrong with this rank at present; one at a time, the last one asked for.

    `slow`: every chunk takes `factor` times as long. `flap`: slow and healthy in turns of `seconds` each.
    `stall`: makes no progress while its heartbeat goes on. `stop`: the process stops and answers nothing.
    For `slow` and `stall`, `seconds` of 0 means until further notice; `none` heals.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.mode, self._factor, self._seconds, self._since_s = "none", 1.0, 0.0, 0.0

    def inject(self, mode: str, factor: float = 2.0, seconds: float = 0.0) -> None:
        """Begin to suffer; ImpossibleRun names a mode or figure that makes no sense."""
        if mode not in MODES:
            raise ImpossibleRun(f"mode {mode!r} is none of {', '.join(MODES)}")
        if not 1 <= factor <= LARGEST_FACTOR:
            raise ImpossibleRun(f"factor is {factor}: it must lie in 1 to {LARGEST_FACTOR:g}")
        if not seconds >= 0 or (mode == "flap" and seconds == 0):
            raise ImpossibleRun(
                f"seconds is {seconds}: {mode} needs {'more than 0' if seconds == 0 else '0 or more'}"
            )
        with self._changed:
            self.mode, self._factor, self._seconds = mode, factor, seconds
            self._since_s = time.monotonic()
            self._changed.notify_all()
        if mode == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)

    def factor(self) -> float:
        """How many times as long a chunk takes now."""
        elapsed = time.monotonic() - self._since_s
        if self.mode == "slow" and (not self._seconds or elapsed < self._seconds):
            return self._factor
        if self.mode == "flap" and int(elapsed / self._seconds) % 2 == 0:
            return self._factor
        return 1.0

    def suffer(self, busy_s: float) -> float:
        """After a chunk that kept the device busy for `busy_s`; returns the seconds added to it."""
        begun = time.monotonic()
        with self._changed:
            while self.mode == "stall":
                left = self._since_s + self._seconds - time.monotonic() if self._seconds else None
                if left is not None and left <= 0:
                    self.mode = "none"
                    break
                self._changed.wait(left)
        extra_s = busy_s * (self.factor() - 1)
        if extra_s > 0:
            time.sleep(extra_s)
        return time.monotonic() - begun
