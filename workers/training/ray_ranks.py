"""Ranks as Ray actors: one process per rank, on the node of its device; they end with their driver."""

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

import structlog
from django.conf import settings

from workers.ray_cluster import connect, ray
from workers.trainer.parallel.hooks import MakeHook, no_hook
from workers.trainer.parallel.rank import RankOrder
from workers.training.rank_actor import LOOPBACK, RankActor

log = structlog.get_logger(__name__)


class RayProcess:
    """An actor that is a rank, seen from the launcher."""

    def __init__(self, actor: Any, started: Any, host: str) -> None:
        self._actor, self._started, self._host = actor, started, host
        self._pid: int | None = None
        self._here = False
        self._taken = 0
        self._dead = False
        self._asked = actor.poll.remote(0)

    @property
    def pid(self) -> int:
        """Its process number on its node; waits until it has one."""
        self._identify(timeout_s=None)
        assert self._pid is not None
        return self._pid

    def poll(self) -> list[dict[str, Any]]:
        """Return new events, without waiting."""
        if self._dead or not ray.wait([self._asked], timeout=0)[0]:
            return []
        try:
            events: list[dict[str, Any]] = ray.get(self._asked)
        except ray.exceptions.RayError as error:
            log.info("rank.lost", error=str(error).strip().splitlines()[-1][:200])
            self._dead = True
            return []
        self._taken += len(events)
        self._asked = self._actor.poll.remote(self._taken)
        return events

    def command(self, data: dict[str, Any]) -> None:
        """Pass a command on; does nothing to a dead process."""
        if not self._dead:
            self._actor.command.remote(data)

    def alive(self) -> bool:
        """Whether the process runs, as far as `poll` has seen, or is stopped but not dead."""
        return not self._dead

    def end(self, grace_s: float) -> None:
        """End it: kindly first, by force after `grace_s`. A stopped process hears nothing but the kernel."""
        if self._dead:
            return
        if grace_s > 0:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.wait([self._actor.stop.remote()], timeout=grace_s)
        self._identify(timeout_s=0.0)
        ray.kill(self._actor)
        if self._here and self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._dead = True

    def _identify(self, timeout_s: float | None) -> None:
        if self._pid is None and ray.wait([self._started], timeout=timeout_s)[0]:
            with contextlib.suppress(ray.exceptions.RayError):
                self._pid, address = ray.get(self._started)
                self._here = address == self._host


class RayProcesses:
    """Starts ranks as actors, each on the node of its device.

    `devices` has a row per plan rank: `kind` (`cpu` or a GPU's name), `index`, `ray_node_id` or None where
    Ray chooses. `hook_of` gives a rank what makes its bubble hook, in the actor's process.
    """

    def __init__(
        self,
        devices: list[dict[str, Any]],
        hook_of: Callable[[int], MakeHook | None] = no_hook,
    ) -> None:
        connect()
        self._devices, self._hook_of = devices, hook_of
        # the store knows no password: where all ranks are on this machine, nobody else shall reach it
        self.host = ray.util.get_node_ip_address() if settings.RAY_ADDRESS else LOOPBACK

    def start(self, order: RankOrder) -> RayProcess:
        """Start an actor and make it the rank of an order; returns before it is up."""
        row = self._devices[order.plan_rank]
        options: dict[str, Any] = {
            # the queue has granted the devices: a rank must not wait for Ray's own count of cores
            "num_cpus": 0,
            "num_gpus": 0 if row["kind"] == "cpu" else 1,
            "max_concurrency": 8,
            "max_restarts": 0,
            "runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(order.spec["threads"])}},
        }
        if row.get("ray_node_id"):
            options["scheduling_strategy"] = _on_node(row["ray_node_id"])
        actor: Any = ray.remote(RankActor).options(**options).remote(self._hook_of(order.plan_rank))
        own = {"gpu": 0} if row["kind"] != "cpu" else {"core": row["index"]}
        return RayProcess(actor, actor.start.remote({**order.to_json(), **own}), self.host)


def _on_node(node_id: str) -> Any:
    # the module that connects sets how Ray authenticates, so nothing of Ray may be imported before it
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id, soft=False)
