"""The Ray actors that runs of a study live in: one per device, one per device lent for moments."""

import os
from dataclasses import replace
from typing import Any

from cluster.models import Device
from workers.actors import DeviceProcess
from workers.bubble_process import BubbleProcess
from workers.ray_cluster import ray
from workers.tuner.bubbles import board_of, rules_of


def is_gpu(device: Device | None) -> bool:
    """Return whether a device is more than a core."""
    return device is not None and device.kind != "cpu"


def on_gpu(order: Any) -> Any:
    """Return an order for the only GPU that an actor sees."""
    return replace(order, setting=replace(order.setting, device="cuda"))


def device_actor(device: Device | None) -> Any:
    """Make the actor of a device; without one it gets a core."""
    return _actor_class(DeviceProcess, num_cpus=1, num_gpus=int(is_gpu(device))).remote()


def bubble_actor(label: str) -> Any:
    """Make the actor that stands for the bubbles of a device; it needs no device of its own."""
    return _actor_class(BubbleProcess, num_cpus=0).remote(board_of(label), rules_of(label))


def _actor_class(process: type, **resources: int) -> Any:
    environment = {"OMP_NUM_THREADS": "1"}
    if search_path := os.environ.get("PYTHONPATH"):  # where the operator's own workloads are found
        environment["PYTHONPATH"] = search_path
    runtime = {"env_vars": environment}
    return ray.remote(process).options(max_concurrency=8, max_restarts=0, runtime_env=runtime, **resources)
