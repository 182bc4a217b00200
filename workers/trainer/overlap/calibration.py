"""What this machine really does, as a cluster profile: products, streaming kernels, messages.

Times on a GPU are of CUDA events, on a CPU of the clock. Half of the sizes are fitted, the other half tell
how far the model is off.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from jobs.core.overlap.clusters import Cluster
from jobs.core.overlap.kernels import gemm_s, memory_bound_s

_GEMM_SIZES = (
    (128, 128, 128),
    (256, 256, 256),
    (384, 256, 384),
    (512, 512, 512),
    (768, 512, 512),
    (1024, 512, 768),
)
_GPU_FACTOR = 8
_STREAM_ITEMS = (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 21, 1 << 22)
_MESSAGE_BYTES = (1 << 10, 1 << 14, 1 << 17, 1 << 19, 1 << 20, 1 << 22)
_REPEATS = 7


@dataclass(frozen=True)
class Sample:
    """One operator at one size."""

    kind: str
    size: str
    fitted: bool
    measured_s: float
    estimated_s: float = 0.0

    @property
    def error(self) -> float:
        return self.estimated_s / self.measured_s - 1

    def row(self) -> dict[str, Any]:
        figures = {"measured_s": self.measured_s, "estimated_s": self.estimated_s, "error": self.error}
        return {"kind": self.kind, "size": self.size, "fitted": self.fitted, **figures}


def timed(run: Callable[[], object], device: str, repeats: int = _REPEATS) -> float:
    """Seconds of the fastest of several calls, which others disturbed least; on a GPU between two events."""
    run()
    times = []
    for _ in range(repeats):
        if device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        else:
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
    return min(times)


def calibrate_device(device: str | None = None) -> tuple[Cluster, list[Sample]]:
    """Fit peak, bandwidth and launch cost of one device of this machine.

    Args:
        device: `cpu` or `cuda`; the GPU where there is one.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    factor = _GPU_FACTOR if device == "cuda" else 1
    gemms = [(m * factor, n * factor, k * factor) for m, n, k in _GEMM_SIZES]
    streams = [items * factor**2 for items in _STREAM_ITEMS]
    with torch.no_grad():
        gemm_times = [_gemm(shape, device, dtype) for shape in gemms]
        stream_times = [_stream(items, device, dtype) for items in streams]
    moved = [2 * items * dtype.itemsize for items in streams]
    launch_s, per_byte = _line(moved[::2], stream_times[::2])
    flops = [2.0 * m * n * k for m, n, k in gemms]
    rate = max(work / seconds for work, seconds in list(zip(flops, gemm_times, strict=True))[::2])
    cluster = Cluster(
        device,
        flops_per_s=rate,
        memory_bytes_per_s=1 / per_byte,
        memory_bytes=1e12,
        multiprocessors=_multiprocessors(device),
        node_bytes_per_s=1e9,
        network_bytes_per_s=1e9,
        gemm_efficiency=1.0,
        memory_efficiency=1.0,
        launch_s=launch_s,
    )
    samples = [
        Sample(
            "gemm", "x".join(map(str, shape)), i % 2 == 0, seconds, gemm_s(cluster, *shape, dtype.itemsize)
        )
        for i, (shape, seconds) in enumerate(zip(gemms, gemm_times, strict=True))
    ]
    samples += [
        Sample("stream", f"{size >> 10} KiB", i % 2 == 0, seconds, memory_bound_s(cluster, size))
        for i, (size, seconds) in enumerate(zip(moved, stream_times, strict=True))
    ]
    return cluster, samples


def _multiprocessors(device: str) -> int:
    # A CPU has no waves of blocks: one that is always full.
    return torch.cuda.get_device_properties(0).multi_processor_count if device == "cuda" else 1


def _gemm(shape: tuple[int, int, int], device: str, dtype: torch.dtype) -> float:
    rows, columns, inner = shape
    a = torch.randn(rows, inner, device=device, dtype=dtype)
    b = torch.randn(inner, columns, device=device, dtype=dtype)
    return timed(lambda: a @ b, device)


def _stream(items: int, device: str, dtype: torch.dtype) -> float:
    x, out = (torch.empty(items, device=device, dtype=dtype) for _ in range(2))
    return timed(lambda: torch.neg(x, out=out), device)


def calibrate_messages(ranks: int) -> tuple[dict[str, float], list[Sample]]:
    """Fit latency and bandwidth of an all-reduce of the present process group; every rank has to call it."""
    times = []
    for size in _MESSAGE_BYTES:
        x = torch.zeros(size // 4)
        times.append(timed(lambda x=x: dist.all_reduce(x), "cpu"))  # type: ignore[misc]
    alpha_s, per_byte = _line(_MESSAGE_BYTES[::2], times[::2])
    # Ring: 2 (n-1) steps of 1/n of the message.
    volume, steps = 2 * (ranks - 1) / ranks, 2 * (ranks - 1)
    samples = [
        Sample("all_reduce", f"{size >> 10} KiB", i % 2 == 0, seconds, alpha_s + per_byte * size)
        for i, (size, seconds) in enumerate(zip(_MESSAGE_BYTES, times, strict=True))
    ]
    return {"node_step_s": alpha_s / steps, "node_bytes_per_s": volume / per_byte}, samples


def _line(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Intercept and slope, weighted so that relative errors count; neither is below a trifle."""
    x, y = np.asarray(sizes, float), np.asarray(seconds, float)
    matrix = np.stack([np.ones_like(x), x], 1) / y[:, None]
    solution = np.linalg.lstsq(matrix, np.ones_like(y), rcond=None)[0]
    return max(float(solution[0]), 1e-9), max(float(solution[1]), 1e-15)
