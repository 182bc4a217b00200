"""Processes by identity: a process id alone may have been given to somebody else since."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Identity:
    """A process id with the clock tick since boot at which that process started."""

    pid: int
    started: int

    def is_alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        return identify(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Signal the process, unless its id belongs to another one by now."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def identify(pid: int) -> Identity | None:
    """The identity of a running process, or None where there is none."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return _identify_without_proc(pid)
    # The command's name, in brackets, may itself hold spaces and brackets.
    fields = line[line.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else Identity(pid, int(fields[19]))


def _identify_without_proc(pid: int) -> Identity | None:
    if Path("/proc/self/stat").exists():
        return None
    found = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        return None
    return Identity(pid, int(time.mktime(time.strptime(found.stdout.strip()))))


def was_started_with(pid: int, argument: Path) -> bool:
    """Whether a process was started with this argument; true where the system does not tell.

    The command line is asked because, unlike the working directory, it is readable across accounts.
    """
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return not Path("/proc/self/cmdline").exists()
    return os.fsencode(argument) in arguments


def follow_parent(number: signal.Signals) -> Callable[[], None] | None:
    """A `preexec_fn` that has the kernel send the signal when the starting process dies."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def request() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the kernel knew
            os._exit(1)

    return request


def wait_until_gone(identities: list[Identity], seconds: float) -> list[Identity]:
    """Wait for processes that need not be our children; return those still alive."""
    deadline = time.monotonic() + seconds
    left = [identity for identity in identities if identity.is_alive()]
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [identity for identity in left if identity.is_alive()]
    return left


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log, for an error message."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 16384))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
