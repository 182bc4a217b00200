"""Ranks of the parallel trainer, as processes of this machine, that lend the bubbles of their schedule."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from workers.squeezer.lender import Lender
from workers.squeezer.processes import bind_to
from workers.trainer.parallel.local import PRELOADED, LocalProcess
from workers.trainer.parallel.rank import Rank, RankOrder


class LendingProcesses:
    """Starts ranks here, each bound to a core and with a board in `folder`."""

    host = "127.0.0.1"

    def __init__(self, folder: Path, cores: Mapping[int, int]) -> None:
        self.folder, self.cores = folder, dict(cores)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    def board(self, plan_rank: int) -> Path:
        """The board of a rank; it exists once the rank's process has started."""
        return self.folder / f"rank-{plan_rank}.board"

    def start(self, order: RankOrder) -> LocalProcess:
        """Start a process and make it the rank of an order."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=serve,
            args=(theirs, self.board(order.plan_rank), self.cores.get(order.plan_rank, -1)),
            name=f"rank-{order.plan_rank}",
            daemon=True,
        )
        process.start()
        theirs.close()
        ours.send(("start", order.to_json()))
        return LocalProcess(process, ours)


def serve(pipe: Connection, board: Path, core: int) -> None:
    """Be a rank that lends, until the launcher says stop or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the launcher's business
    bind_to(core)
    lender = Lender(board, core=core)
    rank = Rank(lender)
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
    lender.close()
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
