"""Lending the bubbles of a `torch.distributed.pipelining` schedule, without changing it."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.pipelining import schedules

from workers.squeezer.errors import SqueezerError
from workers.squeezer.lender import Lender

_WAIT = "_wait_batch_p2p"  # every schedule waits for its neighbours through this function


@contextmanager
def lending(schedule: Any, lender: Lender, device: torch.device | None = None) -> Iterator[Lender]:
    """Announce every wait of the schedule's steps; slot n is the n-th wait of a step.

    On a GPU a wait returns to the host at once. There the device's own work is finished before the bubble is
    announced, so that only communication is left, and the host follows the stream to the bubble's end.

    Raises SqueezerError where this version of torch waits in another way.
    """
    wait = getattr(schedules, _WAIT, None)
    if wait is None:
        raise SqueezerError(
            f"this version of torch.distributed.pipelining has no {_WAIT}: use lender.bubble(n)"
        )
    slots, step = itertools.count(), schedule.step
    stream = torch.cuda.current_stream(device) if device is not None and device.type == "cuda" else None

    def announced(work: list[Any]) -> None:
        if not work:
            return
        if stream is not None:
            stream.synchronize()
        with lender.bubble(next(slots)):
            wait(work)
            if stream is not None:
                stream.synchronize()

    def stepping(*args: Any, **kwargs: Any) -> Any:
        nonlocal slots
        slots = itertools.count()
        with _in_place_of(wait, announced):
            return step(*args, **kwargs)

    schedule.step = stepping
    try:
        yield lender
    finally:
        schedule.step = step
        lender.close()


@contextmanager
def _in_place_of(wait: Callable[[Any], None], other: Callable[[Any], None]) -> Iterator[None]:
    setattr(schedules, _WAIT, other)
    try:
        yield
    finally:
        setattr(schedules, _WAIT, wait)
