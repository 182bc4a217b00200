"""The owner's hooks: what a rank of a pipeline calls when it begins to wait and when it goes on."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.squeezer.board import OwnBoard
from workers.squeezer.lengths import SlotLengths
from workers.squeezer.places import board_path
from workers.squeezer.processes import available_bytes, cpu_ns

LEAST_S = 0.002
MEMORY_EVERY_NS = 1_000_000_000


class Lender:
    """Announces the bubbles of one device on its board. A `BubbleHook`; one thread calls it.

    It never waits: an announcement costs a few microseconds, whether anybody listens or not. Waits that
    usually end within `least_s` are measured and not announced. `core` is the core this rank is bound to,
    `device` the index of its device on the node.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        core: int = -1,
        device: int = -1,
        least_s: float = LEAST_S,
        free_bytes: Callable[[], int] = available_bytes,
    ) -> None:
        self.path = Path(path)
        self._board = OwnBoard(self.path, os.getpid(), core, device)
        self._least_ns = int(least_s * 1e9)
        self._free_bytes, self._free, self._free_ns = free_bytes, free_bytes(), 0
        self._lengths = SlotLengths()
        self._slot, self._round, self._entered_ns = -1, 0, 0
        self._open = self._inside = False
        self._guests: list[int] = []
        self._guests_ns = self._leaked_ns = 0

    def on_bubble_enter(self, slot: int, expected_s: float = 0.0) -> None:
        """The rank waits from now on. Slots are numbered in the order of an iteration, which begins anew
        where the numbers do; lengths are learned here, whatever `expected_s` says."""
        now_ns = time.monotonic_ns()
        self._round += slot <= self._slot
        self._slot, self._entered_ns, self._inside = slot, now_ns, True
        expected_ns = self._lengths.low_ns(slot)
        self._open = bool(expected_ns) and expected_ns >= self._least_ns
        if self._open:
            self._leaked_ns = self._count()
            self._board.open(slot, now_ns, expected_ns, self._free, self._round)
            if now_ns - self._free_ns > MEMORY_EVERY_NS:
                self._free, self._free_ns = self._free_bytes(), now_ns

    def on_bubble_exit(self, slot: int) -> None:
        """What the rank waited for has arrived."""
        if not self._inside:
            return
        now_ns = time.monotonic_ns()
        self._inside = False
        if self._open:
            self._open = False
            self._board.close(now_ns, self._count(), self._leaked_ns)
        self._board.waited(now_ns - self._entered_ns)
        self._lengths.note(slot, now_ns - self._entered_ns)

    @contextmanager
    def bubble(self, slot: int) -> Iterator[None]:
        """Around a wait: `with lender.bubble(3): work.wait()`."""
        self.on_bubble_enter(slot)
        try:
            yield
        finally:
            self.on_bubble_exit(slot)

    def begin_epoch(self, epoch: int) -> None:
        """The schedule has changed: slots mean something else and their lengths are learned anew."""
        self.on_bubble_exit(self._slot)
        self._lengths.forget()
        self._slot = -1
        self._board.begin_epoch(epoch)

    def close(self) -> None:
        """Nothing is lent any more; guests go elsewhere."""
        self.on_bubble_exit(self._slot)
        self._board.farewell()

    def _count(self) -> int:
        """Processor time of the guests since the last count; 0 where they were not the same ones then."""
        guests = self._board.guests
        now_ns = sum(map(cpu_ns, guests))
        used_ns = max(0, now_ns - self._guests_ns) if guests == self._guests else 0
        self._guests, self._guests_ns = guests, now_ns
        return used_ns


def make_lender(name: str, core: int, device: int) -> Lender:
    """Make the lender of the process this is, on the board of that name."""
    return Lender(board_path(name), core=core, device=device)
