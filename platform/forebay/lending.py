"""`forebay.lend_bubbles`: a pipeline job of one's own lends the time in which its ranks wait."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def lend_bubbles(schedule: Any = None, *, name: str | None = None, least_s: float = 0.002) -> Iterator[Any]:
    """Lend the bubbles of this rank while the block runs; yields the rank's lender.

    Args:
        schedule: a `torch.distributed.pipelining` schedule, whose waits are lent; None for a pipeline that
            announces its waits itself: `with lender.bubble(n): work.wait()`, n along the iteration.
        name: of the board in the folder of boards; the process number if absent.
        least_s: waits that usually end sooner are not lent.

    It never waits for a guest: an announcement costs microseconds. A rank that wants its whole device back
    leaves the block.
    """
    from workers.squeezer.lender import Lender
    from workers.squeezer.places import board_path

    board = board_path(name or str(os.getpid()))

    if schedule is None:
        lender = Lender(board, core=_core(), device=_core(), least_s=least_s)
        try:
            yield lender
        finally:
            lender.close()
            lender.path.unlink(missing_ok=True)
        return
    import torch

    from workers.trainer.bubbles.pipelining import lending

    stage = getattr(schedule, "_stage", None) or schedule._stages[0]
    device = torch.device(stage.device)
    free = {"free_bytes": lambda: torch.cuda.mem_get_info(device)[0]} if device.type == "cuda" else {}
    index = _core() if device.type == "cpu" else device.index or 0
    lender = Lender(board, core=_core(), device=index, least_s=least_s, **free)
    try:
        with lending(schedule, lender, device):
            yield lender
    finally:
        lender.path.unlink(missing_ok=True)


def _core() -> int:
    """The core this process is bound to; -1 where it may use several."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    return next(iter(cores)) if len(cores) == 1 else -1
