"""What machines and devices there are: GPUs by NVML, cores where there is no GPU."""

import os
import socket
from pathlib import Path
from typing import Any

import pynvml

from cluster.services.devices import FoundDevice, FoundNode


def this_machine(max_devices: int | None = None) -> FoundNode:
    """Return this machine with its GPUs, or with one device per core that this process may use."""
    gpus = nvidia_gpus()
    cores = sorted(os.sched_getaffinity(0))
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    devices = gpus or [
        FoundDevice(
            index=core, kind="cpu", memory_bytes=memory_bytes // len(cores), facts={"model": cpu_model()}
        )
        for core in cores[:max_devices]
    ]
    return FoundNode(
        name=socket.gethostname(),
        address="127.0.0.1",
        cpus=len(cores),
        memory_bytes=memory_bytes,
        devices=tuple(devices),
        facts={"cpu": cpu_model()},
    )


def nvidia_gpus() -> list[FoundDevice]:
    """Return the GPUs the driver reports, with the facts people ask for first."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        return [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int) -> FoundDevice:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    facts: dict[str, Any] = {
        "uuid": _text(pynvml.nvmlDeviceGetUUID(handle)),
        "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
        "compute_capability": ".".join(map(str, pynvml.nvmlDeviceGetCudaComputeCapability(handle))),
    }
    return FoundDevice(
        index=index,
        kind=_text(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        facts=facts,
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def cpu_model() -> str:
    """Return the processor's name as the kernel gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "cpu"


def ray_machines(nodes: list[dict[str, Any]]) -> list[FoundNode]:
    """Return the machines of a Ray cluster from `ray.nodes()`; GPUs if it declares any, else cores."""
    return [_ray_machine(node) for node in nodes if node.get("Alive")]


def _ray_machine(node: dict[str, Any]) -> FoundNode:
    resources = node.get("Resources", {})
    accelerator = next((k.partition(":")[2] for k in resources if k.startswith("accelerator_type:")), "gpu")
    gpus, cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
    kind, count = (accelerator, gpus) if gpus else ("cpu", cpus)
    memory_bytes = int(resources.get("memory", 0))
    return FoundNode(
        name=node.get("NodeName") or node["NodeManagerHostname"],
        address=node.get("NodeManagerAddress", ""),
        cpus=cpus,
        memory_bytes=memory_bytes,
        devices=tuple(
            FoundDevice(index=i, kind=kind, memory_bytes=memory_bytes // max(1, count)) for i in range(count)
        ),
        facts={"ray_node_id": node["NodeID"]},
    )
