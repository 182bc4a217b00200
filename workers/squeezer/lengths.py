"""How long each bubble of a schedule lasts: a low percentile of the last times, because a guest that is
promised the mean outstays half of its bubbles."""

import math
from collections import deque

REMEMBERED = 20
LOW = 0.1
ENOUGH = 3  # a slot seen less often than this has no known length


class SlotLengths:
    """Lengths by slot, in nanoseconds."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[int]] = {}
        self._low: dict[int, int] = {}

    def note(self, slot: int, length_ns: int) -> None:
        """Add an occurrence."""
        seen = self._seen.get(slot)
        if seen is None:
            seen = self._seen[slot] = deque(maxlen=REMEMBERED)
        seen.append(length_ns)
        if len(seen) >= ENOUGH:
            self._low[slot] = sorted(seen)[math.ceil(LOW * len(seen)) - 1]

    def low_ns(self, slot: int) -> int:
        """The slot's 10th percentile by nearest rank; 0 while it is not known."""
        return self._low.get(slot, 0)

    def forget(self) -> None:
        """The slots mean something else from now on."""
        self._seen.clear()
        self._low.clear()
