"""What lies between the thread that trains and the launcher: events out, commands in."""

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from workers.trainer.parallel.errors import ImpossibleRun
from workers.trainer.parallel.faults import Fault

LONG_POLL_S = 0.5


@dataclass(frozen=True)
class Change:
    """An order to move to a layout: who takes part (`survivors`, plan ranks), under which epoch."""

    epoch: int
    plan: dict[str, Any]
    digest: str
    survivors: tuple[int, ...]
    received_s: float


class Desk:
    """Thread-safe: one thread trains, others bring commands and fetch events."""

    def __init__(self) -> None:
        self.news = threading.Condition()
        self.fault = Fault()
        self.known_step: int | None = None
        self.checkpoint_asked = False
        self.finish_asked = False
        self.stopped = False
        self._events: deque[dict[str, Any]] = deque()
        self._taken = 0
        self._change: Change | None = None

    def report(self, event: dict[str, Any]) -> None:
        """Keep an event for the launcher."""
        with self.news:
            self._events.append(event)
            self.news.notify_all()

    def poll(self, after: int, wait_s: float = LONG_POLL_S) -> list[dict[str, Any]]:
        """Return events from number `after` on, waiting a moment if there are none; drops earlier ones."""
        with self.news:
            while self._taken < after and self._events:
                self._events.popleft()
                self._taken += 1
            if not self._events:
                self.news.wait(wait_s)
            return list(self._events)

    def command(self, data: dict[str, Any], now_s: float) -> None:
        """Take a command; ImpossibleRun names one that is not known."""
        kind = data.get("kind")
        if kind == "inject":
            self.fault.inject(data["mode"], data.get("factor") or 2.0, data.get("seconds") or 0.0)
            return
        with self.news:
            if kind == "reconfigure":
                self._take(data, now_s)
            elif kind == "checkpoint":
                self.checkpoint_asked = True
            elif kind == "known":
                self.known_step = data["step"]
            elif kind == "finish":
                self.finish_asked = True
            else:
                raise ImpossibleRun(
                    f"command {kind!r} is none of reconfigure, inject, checkpoint, known, finish"
                )
            self.news.notify_all()

    def stop(self) -> None:
        """Have the training thread end as soon as it looks."""
        with self.news:
            self.stopped = True
            self.news.notify_all()

    def newest(self, beyond: int) -> Change | None:
        """The last change ordered, if its epoch is beyond the one given."""
        with self.news:
            return self._change if self._change is not None and self._change.epoch > beyond else None

    def wait(self, beyond: int) -> Change | None:
        """Wait for a change beyond an epoch; None when the rank is told to stop."""
        with self.news:
            while not self.stopped:
                if self._change is not None and self._change.epoch > beyond:
                    return self._change
                self.news.wait(1.0)
            return None

    def _take(self, data: dict[str, Any], now_s: float) -> None:
        change = Change(
            int(data["epoch"]), data["plan"], data["digest"], tuple(sorted(data["survivors"])), now_s
        )
        if self._change is None or change.epoch > self._change.epoch:
            self._change = change
