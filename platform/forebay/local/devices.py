"""The device processes of a local study: started, watched, restarted."""

import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from tuning.core.workload import Workload

HANG_S = 300.0  # without a batch or a message for this long, a run is lost


def device_names(wanted: int | None) -> list[str]:
    """Return the devices of this machine: GPUs, or processor cores where there is none.

    More devices than there are may be asked for on a machine without GPUs; they share the cores.
    """
    os.environ.setdefault(
        "PYTORCH_NVML_BASED_CUDA_CHECK", "1"
    )  # does not start CUDA, so forking stays possible
    import torch

    if torch.cuda.is_available():
        names = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        return names[:wanted] if wanted else names
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [f"cpu:{index}" for index in range(wanted or cores)]


def torch_device(name: str) -> str:
    """Return the torch name of a device: processor cores are all `cpu`."""
    return "cpu" if name.startswith("cpu") else name


def threads_per_device(devices: list[str]) -> int:
    """Return the CPU threads of one device process: one where a core is the device."""
    if all(torch_device(name) == "cpu" for name in devices):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // max(len(devices), 1))


@dataclass
class DeviceProcess:
    """One process for one device, with a pipe to it."""

    name: str
    workload: Workload | None
    threads: int
    can_fork: bool
    process: Any = None
    pipe: Connection | None = None
    run: str | None = None
    heard_s: float = 0.0

    def start(self) -> None:
        """Start the process; forked where possible, which spares it importing PyTorch."""
        from tuning.core import hydro
        from workers.trainer.process import serve

        if self.can_fork:
            hydro.load_all()
        context: Any = multiprocessing.get_context("fork" if self.can_fork else "spawn")
        here, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there, self.workload, self.threads), daemon=True)
        self.process.start()
        there.close()
        self.pipe, self.heard_s = here, time.monotonic()

    def send(self, message: Any) -> None:
        """Send a message, unless the process is gone (which `read` will find out)."""
        assert self.pipe is not None
        try:
            self.pipe.send(message)
        except (BrokenPipeError, OSError):
            return

    def begin(self, order: Any) -> None:
        """Give the process an order."""
        self.run, self.heard_s = order.run, time.monotonic()
        self.send(("order", order))

    def lost_reason(self) -> str:
        """Return how the process ended, for people."""
        self.process.join(timeout=5)
        code = self.process.exitcode
        if code is None:
            return "its process stopped answering"
        if code < 0:
            name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
            return f"its process was killed by {name}"
        return f"its process exited with code {code}"

    def hangs(self) -> bool:
        """Return whether the process has a run and has been silent for too long."""
        return self.run is not None and time.monotonic() - self.heard_s > HANG_S

    def stop(self, wait_s: float = 2.0) -> None:
        """End the process: kindly, then by force."""
        if self.process is None:
            return
        self.send(None)
        self.process.join(timeout=wait_s)
        self.kill()

    def kill(self) -> None:
        """End the process by force."""
        if self.process is not None and self.process.is_alive():
            self.process.kill()
            self.process.join(timeout=5)
        if self.pipe is not None:
            self.pipe.close()
        self.process, self.pipe, self.run = None, None, None


def may_fork() -> bool:
    """Return whether a forked child can use PyTorch: on Linux, before CUDA was started here."""
    if not sys.platform.startswith("linux"):
        return False
    torch = sys.modules.get("torch")
    return torch is None or not torch.cuda.is_initialized()


def ready(processes: list[DeviceProcess], timeout_s: float) -> list[DeviceProcess]:
    """Return the processes that have something to say, after at most `timeout_s`."""
    by_pipe = {process.pipe: process for process in processes if process.pipe is not None}
    return [by_pipe[pipe] for pipe in wait(list(by_pipe), timeout_s)]  # type: ignore[index]
