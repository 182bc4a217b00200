"""Other processes: whether they live, their processor time, their memory, and what ends with them."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PAGE = os.sysconf("SC_PAGE_SIZE")
MOST_EXPENDABLE = 1000


def birth_of(pid: int) -> int:
    """When a process was born, in clock ticks since boot, so that its number can be told from a later one's.

    0 where the system does not say or there is no such process.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def lives(pid: int, birth: int) -> bool:
    """Whether that very process still runs (a zombie does not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return sys.platform != "linux" and _answers(pid)
    fields = text.rpartition(")")[2].split()
    return fields[0] not in "ZX" and (not birth or int(fields[19]) == birth)


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def cpu_ns(pid: int) -> int:
    """Processor time a process has used, all its threads together; 0 if it is gone."""
    try:
        # a process's clock has the number that clock_getcpuclockid(3) computes
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return 0


def resident_bytes(pid: int) -> int:
    """Memory a process occupies; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


def available_bytes() -> int:
    """Memory of this node that could be given out without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_AVPHYS_PAGES") * _PAGE


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process, stopped or not, when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def be_first_to_go() -> None:
    """Offer this process to the kernel when memory runs out, before every other."""
    try:
        Path("/proc/self/oom_score_adj").write_text(str(MOST_EXPENDABLE))
    except OSError:
        return  # not Linux, or not allowed: the squeezer's own watch remains


def take_lowest_class() -> bool:
    """Run only when the core has nothing else to do; returns whether the system can do that."""
    if not hasattr(os, "SCHED_IDLE"):
        os.nice(19)
        return False
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return True


def bind_to(core: int) -> None:
    """Run on one core only, this thread and those it starts; -1 for no binding."""
    if core >= 0 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
