"""The squeezer: serves the lent devices of a node and looks after the guests on them.

It loads neither torch nor a framework. Whatever happens to it, a job that lends never notices: it waits for
nobody, and the guests end with their squeezer.
"""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuning.core.study.events import ContainerEnded, Profiled, TargetEnded, TransferChecked
from workers.squeezer.errors import SqueezerError
from workers.squeezer.guests import Guest, GuestOrder
from workers.squeezer.processes import available_bytes
from workers.squeezer.rules import Rules
from workers.squeezer.samples import Sampler
from workers.squeezer.stage import Stage
from workers.trainer.orders import Verdict

LOOK_S = 0.1
SAMPLE_S = 1.0

ENDINGS = (ContainerEnded, TargetEnded, Profiled, TransferChecked)

Tell = Callable[[tuple[Any, ...]], None]


class Squeezer:
    """Takes requests from any thread, acts in the one that calls `run`.

    `tell` gets ("started", guest, process number, gate), ("messages", guest, list),
    ("ended", guest, reason), ("sample", board, figures) and ("refused", request, reason).
    With a `parent` it leaves as well when that process is gone.
    """

    def __init__(self, folder: Path, tell: Tell, rules: Rules | None = None, parent: int = 0) -> None:
        self.folder, self.rules = folder, rules or Rules()
        self._parent = parent
        self.stages: dict[str, Stage] = {}
        self.guests: dict[str, Guest] = {}
        self._samplers: dict[str, Sampler] = {}
        self._tell, self._tell_lock = tell, threading.Lock()
        self._requests: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._sampled_s = time.monotonic()

    def ask(self, request: tuple[Any, ...] | None) -> None:
        """Hand in a request: ("board", path), ("guest", GuestOrder), ("send", guest, message),
        ("hold", guest, bool), ("end", guest), ("lend", board, bool), ("rules", Rules); None to leave."""
        self._requests.put(request)

    def run(self) -> None:
        """Serve until told to leave; no guest is left behind."""
        try:
            while not self._parent or os.getppid() == self._parent:
                with contextlib.suppress(queue.Empty):
                    request = self._requests.get(timeout=LOOK_S)
                    if request is None:
                        return
                    self._carry_out(*request)
                self._look_after()
        finally:
            for stage in self.stages.values():
                stage.leave()
            for guest in self.guests.values():
                guest.end()

    def _carry_out(self, kind: str, *arguments: Any) -> None:
        try:
            getattr(self, f"_do_{kind}")(*arguments)
        except SqueezerError as error:
            self._say(("refused", kind, str(error)))

    def _do_board(self, path: str) -> None:
        if path not in self.stages:
            stage = self.stages[path] = Stage(Path(path), self.rules)
            self._samplers[path] = Sampler(stage)
            stage.start()

    def _do_guest(self, order: GuestOrder) -> None:
        if order.board not in self.stages:
            self._say(("ended", order.name, f"board {order.board} is not served here"))
            return
        stage = self.stages[order.board]
        guest = Guest(order, self.folder, stage.board.core, self._hear)
        self.guests[order.name] = guest
        stage.add(guest)
        self._say(("started", order.name, guest.pid, str(guest.gate.page.path)))

    def _do_send(self, name: str, message: Any) -> None:
        if name in self.guests:
            self.guests[name].send(message)

    def _do_hold(self, name: str, held: bool) -> None:
        if name in self.guests:
            self.stages[self.guests[name].order.board].hold(self.guests[name], held)

    def _do_end(self, name: str) -> None:
        if name in self.guests:
            self._end(self.guests[name], "it was told to end")

    def _do_lend(self, path: str, lending: bool) -> None:
        if path in self._samplers:
            self._samplers[path].switch(lending)

    def _do_rules(self, rules: Rules) -> None:
        self.rules = rules
        for stage in self.stages.values():
            stage.follow(rules)

    def _hear(self, name: str, messages: list[Any]) -> None:
        guest = self.guests.get(name)
        if guest is not None and any(isinstance(row, ENDINGS) or _is_broken(row) for row in messages):
            # before anybody hears of it and sends the next order
            guest.rest()
            if guest.leave_by_s is not None:
                guest.leave_by_s = 0.0
        self._say(("messages", name, messages))

    def _say(self, message: tuple[Any, ...]) -> None:
        with self._tell_lock, contextlib.suppress(OSError):
            self._tell(message)

    def _look_after(self) -> None:
        now_s = time.monotonic()
        for path in [path for path, stage in self.stages.items() if not stage.owner_lives()]:
            self._part_with(path, now_s)
        for guest in list(self.guests.values()):
            self._look_at(guest, now_s)
        self._keep_reserve()
        if now_s - self._sampled_s >= SAMPLE_S:
            self._sampled_s = now_s
            for path, sampler in self._samplers.items():
                self._say(("sample", path, sampler.take()))

    def _look_at(self, guest: Guest, now_s: float) -> None:
        ended = guest.how_it_ended()
        if ended is not None:
            self._forget(guest, ended)
            return
        limit = guest.order.limit_bytes
        if guest.leave_by_s is not None and now_s > guest.leave_by_s:
            self._end(guest, "its device was taken back")
        elif limit and guest.resident_bytes() > limit:
            self._end(guest, f"it held more than its {limit / 2**20:.4g} MiB")
        elif guest.spun_s() > self.rules.spin_s:
            self._end(guest, f"it computed for {self.rules.spin_s:g} s without a pause point")

    def _keep_reserve(self) -> None:
        """Under memory pressure the largest guest goes, before anybody else has to."""
        if self.guests and available_bytes() < self.rules.reserve_bytes:
            largest = max(self.guests.values(), key=lambda guest: guest.resident_bytes())
            self._end(largest, "the node ran out of memory")

    def _part_with(self, path: str, now_s: float) -> None:
        """The owner of a board is gone: its guests write a checkpoint on the free core, then go."""
        stage = self.stages.pop(path)
        self._samplers.pop(path)
        stage.leave()
        for guest in stage.guests.values():
            guest.leave_by_s = now_s + self.rules.leave_s
            if guest.run is None:
                self._end(guest, "its device was taken back")
                continue
            guest.send(("pending", guest.run, Verdict(pause=True)))
            guest.set_free()

    def _end(self, guest: Guest, reason: str) -> None:
        guest.told = reason
        guest.end()
        self._forget(guest, reason)

    def _forget(self, guest: Guest, reason: str) -> None:
        self.guests.pop(guest.name, None)
        if guest.order.board in self.stages:
            self.stages[guest.order.board].remove(guest)
        guest.end()  # what it may have left in its group
        self._say(("ended", guest.name, reason))


def _is_broken(message: Any) -> bool:
    """Whether a guest says that it could not carry out its order at all."""
    return isinstance(message, tuple) and message[0] == "broken"
