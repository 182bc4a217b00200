"""The machine: Python, memory, disk, limits, clock, devices."""

import os
import platform
import resource
import shutil
import sys
import time
from pathlib import Path

from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.doctor.finding import Finding, blocks, graded, ok, warning
from workers.trainer.compiling.compilers import c_compiler, cpp_compiler, why_off

GIB = 2**30
# Forebay was released after this day, so an earlier clock is wrong.
EARLIEST = time.mktime((2026, 1, 1, 0, 0, 0, 0, 0, 0))


def findings(data: DataDirectory) -> list[Finding]:
    return [
        python_version(sys.version_info[:2]),
        operating_system(platform.system(), platform.machine()),
        memory(memory_bytes()),
        disk(data),
        shared_memory(Path("/dev/shm")),
        open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        clock(time.time(), newest_change(data)),
        gpus(),
        compiling("cuda" if _has_gpu() else "cpu"),
    ]


def python_version(version: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, version))
    if version < (3, 11):
        return blocks(
            "python", f"Python {text}", "install Python 3.11 and run `make setup PYTHON=python3.11`"
        )
    if version > (3, 11):
        return warning("python", f"Python {text}", "the locked versions are tested on Python 3.11")
    return ok("python", f"Python {text} at {sys.executable}")


def operating_system(system: str, processor: str) -> Finding:
    name = f"{system} on {processor}"
    if system not in {"Linux", "Darwin"} or processor.lower() not in {"x86_64", "amd64", "aarch64", "arm64"}:
        return blocks("system", name, "set DATABASE_URL and BROKER_URL: the bundled servers do not run here")
    return ok("system", f"{name}, {len(_usable_cores())} cores")


def _usable_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def memory_bytes() -> int:
    """Memory that may still be used: what the machine has free, or what the container's limit leaves."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        available = min(available, limit - used)
    except (OSError, ValueError):
        pass  # no /proc, no cgroup or no limit: the machine's figure stands
    return available


def memory(available_bytes: int) -> Finding:
    return graded(
        "memory", available_bytes / GIB, "GiB free", least=1, enough=4,
        advice="the platform needs 0.7 GiB, Ray 0.5 GiB and each trial its own share: close something",
    )  # fmt: skip


def disk(data: DataDirectory) -> Finding:
    place = next(path for path in (data.path, *data.path.parents) if path.exists())
    free = shutil.disk_usage(place).free
    return graded(
        "disk", free / GIB, f"GiB free at {place}", least=0.5, enough=5,
        advice="free some space or choose another place with --data-dir",
    )  # fmt: skip


def shared_memory(mount: Path) -> Finding:
    if not mount.is_dir():
        return ok("shared memory", "no /dev/shm on this system; Ray uses files")
    return graded(
        "shared memory", shutil.disk_usage(mount).total / GIB, f"GiB at {mount}", least=0.0, enough=1,
        advice="Ray falls back to slow files; give a container more, for example `--shm-size 2g`",
    )  # fmt: skip


def open_files(limit: int) -> Finding:
    if limit == resource.RLIM_INFINITY:
        return ok("open files", "no limit")
    return graded(
        "open files", limit, "allowed (ulimit -n)", least=256, enough=4096,
        advice="every browser and every Ray worker needs some: run `ulimit -n 8192` first",
    )  # fmt: skip


def newest_change(data: DataDirectory) -> float:
    """When something in the data directory was last written, as far as its files know."""
    times = [
        path.stat().st_mtime for path in (data.lock, data.runtime, data.logs / "forebay.log") if path.exists()
    ]
    return max(times, default=0.0)


def clock(now: float, newest: float) -> Finding:
    shown = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    if now < EARLIEST:
        return blocks("clock", shown, "the clock is wrong: set it, or sign-ins and sessions will not work")
    if newest > now + 60:
        return warning("clock", f"{shown}, but the data was written later", "the clock went back: check it")
    return ok("clock", shown)


def compiling(device_kind: str) -> Finding:
    """Whether targets can be compiled here; nothing else needs a compiler."""
    missing = why_off(device_kind)
    if missing:
        return ok("torch.compile", f"off, {missing}; targets train eagerly")
    compiler = cpp_compiler() if device_kind == "cpu" else c_compiler()
    return ok("torch.compile", f"on, with {compiler}; targets are compiled where that is measured to pay")


def _has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


def gpus() -> Finding:
    """NVIDIA devices by their driver's own library."""
    try:
        import pynvml
    except ImportError:
        return warning("gpu", "the package nvidia-ml-py is missing", "run `make setup`")
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        names = [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return ok("gpu", "no NVIDIA driver; processor cores serve as devices")
    return ok("gpu", ", ".join(names) or "driver without a device; processor cores serve as devices")
