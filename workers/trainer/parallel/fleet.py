"""The launcher's side: starts ranks, hosts their store, passes orders on, notices who is lost.

The store lives here, outside every rank, so that the death of any rank takes nothing from the others; and the
death of the launcher is seen by all ranks, which then end themselves.
"""

import secrets
import socket
import time
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist

from workers.trainer.parallel.errors import ImpossibleRun
from workers.trainer.parallel.rank import LAUNCHER, RankOrder
from workers.trainer.parallel.spec import RunSpec, plan_digest

SILENT_S = 5.0  # a rank outside the new layout that has not been heard of for so long is given up


class Process(Protocol):
    """A process that is a rank."""

    @property
    def pid(self) -> int:
        """Its process number on its machine."""

    def poll(self) -> list[dict[str, Any]]:
        """Return new events, without waiting; whatever a dead process sent before it died included."""

    def command(self, data: dict[str, Any]) -> None:
        """Pass a command on; does nothing to a dead process."""

    def alive(self) -> bool:
        """Whether the process runs, or is stopped but not dead."""

    def end(self, grace_s: float) -> None:
        """End it: kindly first, by force after `grace_s`."""


class Processes(Protocol):
    """Where ranks come from."""

    host: str  # the address at which ranks reach this machine

    def start(self, order: RankOrder) -> Process:
        """Start a process and make it the rank of an order."""


class Fleet:
    """All ranks of one run."""

    def __init__(self, spec: RunSpec, processes: Processes) -> None:
        spec.check()
        self.spec, self.layout = spec, spec.layout
        self.epoch = -1
        self._processes = processes
        self._ranks: dict[int, Process] = {}
        self._given_up: set[int] = set()
        self._ready: set[int] = set()
        self._heard_s: dict[int, float] = {}
        self._left: list[dict[str, Any]] = []

    def start(self) -> None:
        """Start every rank and have them take the first layout."""
        listener = socket.create_server((self._processes.host, 0))
        self._port = listener.getsockname()[1]
        self._store = dist.TCPStore(
            self._processes.host,
            self._port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=20),
            master_listen_fd=listener.detach(),
        )
        self._store.set(LAUNCHER, secrets.token_hex(8))
        for rank in range(len(self.spec.devices)):
            self._start(rank)
        self.reconfigure(self.layout)

    def poll(self) -> list[dict[str, Any]]:
        """Return the events of all ranks since the last call, without waiting."""
        events, self._left = self._left, []
        for rank, process in self._ranks.items():
            new = process.poll()
            if new:
                self._heard_s[rank] = time.monotonic()
                self._ready.add(rank)
            events += new
        return events

    def lost(self) -> set[int]:
        """Plan ranks whose process is gone."""
        return {rank for rank, process in self._ranks.items() if not process.alive()} | self._given_up

    def admit(self, rank: int) -> None:
        """Start a lost rank anew while the others train on; once it is `ready` a layout may use it."""
        if rank in self.lost():
            self._start(rank)

    def ready(self, rank: int) -> bool:
        """Whether a rank lives and has been heard of, so that no change of layout waits for its start."""
        return rank in self._ready and rank not in self.lost()

    def pids(self) -> dict[int, int]:
        """The process number of every rank."""
        return {rank: process.pid for rank, process in self._ranks.items()}

    def silent_s(self, rank: int) -> float:
        """Seconds since a rank was last heard of, as far as `poll` was called."""
        return time.monotonic() - self._heard_s[rank]

    def reconfigure(self, plan: dict[str, Any], without: Collection[int] = ()) -> int:
        """Order a change of layout; returns its epoch. ImpossibleRun for a layout that cannot run.

        Ranks in `without`, and those outside the layout that are silent, are given up: their processes are
        ended by force, which also frees whoever waits for them. A rank of the layout whose process is gone is
        started anew and gets its state from the others, who wait for it: `admit` it first to spare them that.
        """
        layout = self.spec.read(plan)
        working = {self.spec.devices.index(name) for name in layout.devices()}
        wanted = sorted(working & set(without))
        if wanted:
            raise ImpossibleRun(f"layout: rank {wanted[0]} is to be given up and yet to work")
        for rank, process in list(self._ranks.items()):
            silent = rank not in working and self.silent_s(rank) > SILENT_S
            if rank in without or (silent and process.alive()):
                self.give_up(rank)
        for rank in sorted(working & self.lost()):
            self._start(rank)
        self.epoch += 1
        self.layout = plan
        survivors = sorted(rank for rank in self._ranks if rank in working or self.ready(rank))
        order = {
            "kind": "reconfigure",
            "epoch": self.epoch,
            "plan": plan,
            "digest": plan_digest(plan),
            "survivors": survivors,
        }
        for rank in survivors:
            self._ranks[rank].command(order)
        return self.epoch

    def inject(self, rank: int, mode: str, factor: float = 2.0, seconds: float = 0.0) -> None:
        """Have a rank suffer a fault; see `faults.Fault`."""
        if rank not in self._ranks:
            raise ImpossibleRun(f"rank is {rank}: this run has ranks 0 to {len(self.spec.devices) - 1}")
        self._ranks[rank].command({"kind": "inject", "mode": mode, "factor": factor, "seconds": seconds})

    def checkpoint(self) -> None:
        """Ask for a checkpoint at the next boundary."""
        self._tell({"kind": "checkpoint"})

    def known(self, step: int) -> None:
        """Say that the checkpoint of this step is written down: older ones may go."""
        self._tell({"kind": "known", "step": step})

    def finish(self) -> None:
        """Ask all ranks to end the run at the next boundary, with a checkpoint and the model."""
        self._tell({"kind": "finish"})

    def stop(self, grace_s: float = 2.0) -> None:
        """End every process."""
        for process in self._ranks.values():
            process.end(grace_s)

    def _start(self, rank: int) -> None:
        order = RankOrder(rank, self.spec.to_json(), self._processes.host, self._port)
        if rank in self._ranks:
            self._left += self._ranks[rank].poll()  # what it said before it died
        self._ranks[rank] = self._processes.start(order)
        self._heard_s[rank] = time.monotonic()
        self._given_up.discard(rank)
        self._ready.discard(rank)

    def give_up(self, rank: int) -> None:
        """End a rank's process by force; the next layout that wants the rank starts it anew."""
        self._ranks[rank].end(0.0)
        self._given_up.add(rank)

    def _tell(self, data: dict[str, Any]) -> None:
        for rank, process in self._ranks.items():
            if rank not in self._given_up:
                process.command(data)
