"""A rank: a process's training thread, its heartbeat, and the four methods a launcher calls."""

import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from workers.trainer.parallel.desk import Desk
from workers.trainer.parallel.groups import Link, compute_device
from workers.trainer.parallel.hooks import BubbleHook
from workers.trainer.parallel.spec import RunSpec
from workers.trainer.parallel.trainer import Trainer

HEARTBEAT_S = 0.5
LAUNCHER = "launcher"
STORE_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class RankOrder:
    """What a process needs to become a rank: who it is, the run, and where the launcher's store listens.

    `address` is the one by which other ranks reach this process; `gpu` its own GPU among those it sees,
    `core` the processor core its threads keep to, where it has one.
    """

    plan_rank: int
    spec: dict[str, Any]
    host: str
    port: int
    address: str = "127.0.0.1"
    gpu: int | None = None
    core: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "RankOrder":
        """Read plain data."""
        return cls(**data)


class Rank:
    """One per process. `hook` may use the time this rank waits for others; `orphaned` ends the process."""

    def __init__(
        self, hook: BubbleHook | None = None, orphaned: Callable[[], None] = lambda: os._exit(1)
    ) -> None:
        self.desk = Desk()
        self._hook, self._orphaned = hook, orphaned
        self._trainer: Trainer | None = None
        self._thread: threading.Thread | None = None

    def start(self, order: RankOrder) -> None:
        """Begin; returns at once. Threads started from here on keep to the order's core."""
        if order.core is not None and order.core in os.sched_getaffinity(0):
            os.sched_setaffinity(0, {order.core})
        self._thread = threading.Thread(target=self._run, args=(order,), name="training", daemon=True)
        self._thread.start()
        threading.Thread(target=self._beat, args=(order,), name="heartbeat", daemon=True).start()

    def poll(self, after: int) -> list[dict[str, Any]]:
        """Return events from number `after` on, waiting a moment if there are none."""
        return self.desk.poll(after)

    def command(self, data: dict[str, Any]) -> None:
        """Take a command: reconfigure, inject, checkpoint, known or finish."""
        self.desk.command(data, time.monotonic())

    def stop(self) -> None:
        """End after the present iteration."""
        self.desk.stop()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the training thread has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self, order: RankOrder) -> None:
        try:
            spec = RunSpec.from_json(order.spec)
            torch.set_num_threads(spec.threads)
            # oneDNN keeps code for every shape it has met, 0.8 MB each, and packed micro-batches have a new
            # number of tokens almost every time. Without it memory stays, and the work takes no longer.
            torch.backends.mkldnn.set_flags(_enabled=False)
            store = _connect(order)
            link = Link(store, order.address, spec.timeout_s, store.get(LAUNCHER).decode())
            device = compute_device(order.gpu)
            self._trainer = Trainer(spec, order.plan_rank, link, self.desk, device, self._hook)
            self._trainer.run()
        except Exception as error:
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
            self.desk.report({"kind": "failed", "plan_rank": order.plan_rank, "reason": reason})

    def _beat(self, order: RankOrder) -> None:
        """Say every moment that the process lives; end it where the launcher is gone."""
        try:
            store = _connect(order)
            while not self.desk.stopped:
                store.check([LAUNCHER])
                trainer = self._trainer
                self.desk.report(
                    {
                        "kind": "heartbeat",
                        "plan_rank": order.plan_rank,
                        "step": 0 if trainer is None else trainer.step,
                        "monotonic_s": time.monotonic(),
                        "phase": "warmup" if trainer is None else trainer.phase,
                    }
                )
                time.sleep(HEARTBEAT_S)
        except (RuntimeError, dist.DistError):
            self._orphaned()


def _connect(order: RankOrder) -> dist.TCPStore:
    return dist.TCPStore(
        order.host,
        order.port,
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=STORE_TIMEOUT_S),
    )
