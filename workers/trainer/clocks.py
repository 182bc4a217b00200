"""Clocks for what a device does: on one core of a busy machine the process's own time, else the wall's."""

import os
import time
from collections.abc import Callable

import torch


def step_clock(device: torch.device) -> Callable[[], float]:
    """Return the clock for a step: the process's own time on one core, where other processes do not count."""
    if device.type == "cuda":

        def synchronised() -> float:
            torch.cuda.synchronize(device)
            return time.perf_counter()

        return synchronised
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def compile_clock(device: torch.device) -> Callable[[], float]:
    """Return the clock for a compilation: as `step_clock`, with the compilers that it starts and awaits."""
    if device.type != "cpu" or torch.get_num_threads() > 1:
        return time.perf_counter

    def with_children() -> float:
        spent = os.times()
        return time.process_time() + spent.children_user + spent.children_system

    return with_children
