"""The share of the processors that other programs use while something is measured: is the machine quiet."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

_STAT = Path("/proc/stat")
# Positions in the first line of /proc/stat, in ticks: idle and iowait are time in which nobody computes.
_IDLE = (3, 4)
# Guests are part of user time already.
_COUNTED = 8


def busy_s() -> float | None:
    """Seconds that all processors together have worked since the machine started; None where not told."""
    try:
        fields = _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        ticks = [int(value) for value in fields[:_COUNTED]]
        busy = sum(value for place, value in enumerate(ticks) if place not in _IDLE)
        return busy / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


@dataclass
class MachineLoad:
    """From its making on: the processor time of this process, and of all others."""

    began_s: float = field(default_factory=time.perf_counter)
    own_began_s: float = field(default_factory=time.process_time)
    busy_began_s: float | None = field(default_factory=busy_s)

    def own_s(self) -> float:
        """Processor seconds of this process, all its threads."""
        return time.process_time() - self.own_began_s

    def other_share(self, ours_s: float) -> float | None:
        """The share of all processors that went to others.

        Args:
            ours_s: processor seconds of everything that belongs to the measurement.
        """
        busy, passed_s = busy_s(), time.perf_counter() - self.began_s
        if busy is None or self.busy_began_s is None or passed_s <= 0:
            return None
        return max(0.0, busy - self.busy_began_s - ours_s) / (passed_s * (os.cpu_count() or 1))
