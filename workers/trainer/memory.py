"""How much memory a training step holds, and how much is free on a device."""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
CGROUP_USED = Path("/sys/fs/cgroup/memory.current")


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that may still be allocated on a device; None where that cannot be found out."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    found = [value for value in (_available(), _cgroup()) if value is not None]
    return min(found) if found else None


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup() -> int | None:
    try:
        limit, used = CGROUP_LIMIT.read_text().strip(), CGROUP_USED.read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else max(int(limit) - int(used), 0)


def measure_bytes(
    tensors: Callable[[], Iterable[Tensor]], step: Callable[[], None], device: torch.device
) -> int:
    """Return the bytes that training holds at its peak: `tensors` (parameters, gradients, optimizer state)
    after a step, and what autograd keeps during it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device))
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step()
    for tensor in tensors():
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
    return sum(kept.values())
