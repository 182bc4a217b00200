"""Ranks as processes of this machine, forked from a server that has torch loaded already."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from workers.trainer.parallel.hooks import MakeHook, no_hook
from workers.trainer.parallel.rank import Rank, RankOrder

PRELOADED = ["workers.trainer.parallel.rank"]


class LocalProcesses:
    """Starts ranks here; they reach each other and the launcher by loopback.

    `hook_of` gives a rank what makes its bubble hook.
    """

    host = "127.0.0.1"

    def __init__(self, hook_of: Callable[[int], MakeHook | None] = no_hook) -> None:
        self._hook_of = hook_of
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    def start(self, order: RankOrder) -> "LocalProcess":
        """Start a process and make it the rank of an order."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=serve,
            args=(theirs, self._hook_of(order.plan_rank)),
            name=f"rank-{order.plan_rank}",
            daemon=True,
        )
        process.start()
        theirs.close()
        ranks = len(order.spec["devices"])
        gpu = order.plan_rank if torch.cuda.device_count() >= ranks else None
        ours.send(("start", replace(order, gpu=gpu).to_json()))
        return LocalProcess(process, ours)


class LocalProcess:
    """One such process, seen from the launcher."""

    def __init__(self, process: Any, pipe: Connection) -> None:
        self._process, self._pipe = process, pipe

    @property
    def pid(self) -> int:
        """Its process number."""
        return int(self._process.pid)

    def poll(self) -> list[dict[str, Any]]:
        """Return new events, without waiting."""
        events: list[dict[str, Any]] = []
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll():
                events += self._pipe.recv()
        return events

    def command(self, data: dict[str, Any]) -> None:
        """Pass a command on; does nothing to a dead process."""
        with contextlib.suppress(OSError):
            self._pipe.send(("command", data))

    def alive(self) -> bool:
        """Whether the process runs, or is stopped but not dead."""
        return bool(self._process.is_alive())

    def end(self, grace_s: float) -> None:
        """End it: kindly first, by force after `grace_s`."""
        if grace_s > 0:
            with contextlib.suppress(OSError):
                self._pipe.send(("stop", None))
            self._process.join(grace_s)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def serve(pipe: Connection, make_hook: MakeHook | None = None) -> None:
    """Be a rank until the launcher says stop or is gone. The whole process belongs to this function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the launcher's business
    rank = Rank(None if make_hook is None else make_hook())
    threading.Thread(target=_pump, args=(rank, pipe), name="events", daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            kind, data = pipe.recv()
            if kind == "start":
                rank.start(RankOrder.from_json(data))
            elif kind == "command":
                rank.command(data)
            else:
                break
    os._exit(0)


def _pump(rank: Rank, pipe: Connection) -> None:
    """Send events as they come."""
    sent = 0
    with contextlib.suppress(OSError):
        while True:
            events = rank.poll(sent)
            if events:
                pipe.send(events)
                sent += len(events)
