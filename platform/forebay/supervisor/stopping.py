"""Stopping a platform from outside: a live supervisor, or what a dead one left behind."""

import contextlib
import os
import signal
from collections.abc import Callable

from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.errors import SupervisorError
from forebay.supervisor.postgres import Postgres
from forebay.supervisor.process import Identity, wait_until_gone
from forebay.supervisor.runtime import Runtime, forget, read_runtime
from forebay.supervisor.valkey import Valkey

SERVERS = {"postgres": Postgres.stop_signal, "valkey": Valkey.stop_signal}


def stop_leftovers(runtime: Runtime | None, say: Callable[[str], None]) -> list[str]:
    """Stop what a killed supervisor left, the servers last; return the names.

    The kernel has told these processes to end when their supervisor died; this waits for them and
    forces those that hang.
    """
    left = runtime.leftovers() if runtime else {}
    if left:
        say(f"the last supervisor was killed; ending what it left: {', '.join(sorted(left))}")
    _end({name: part for name, part in left.items() if name not in SERVERS}, seconds=5)
    _end({name: part for name, part in left.items() if name in SERVERS}, seconds=30)
    return sorted(left)


def _end(parts: dict[str, Identity], seconds: float) -> None:
    for name, part in parts.items():
        part.send(SERVERS.get(name, signal.SIGTERM))
    for part in wait_until_gone(list(parts.values()), seconds):
        part.send(signal.SIGKILL)
    # A process killed by force leaves its group behind; each part leads a group of its own.
    for part in wait_until_gone(list(parts.values()), 5) or parts.values():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(part.pid, signal.SIGKILL)


def stop_platform(data: DataDirectory, say: Callable[[str], None], seconds: float = 90) -> str:
    """Stop whatever runs in the data directory; return one sentence about it."""
    runtime = read_runtime(data.runtime)
    if runtime is None:
        return f"nothing runs in {data.path}"
    try:
        if runtime.is_alive():
            runtime.supervisor.send(signal.SIGTERM)
            if wait_until_gone([runtime.supervisor], seconds):
                raise SupervisorError(f"process {runtime.supervisor.pid} did not end within {seconds:.0f} s")
            return f"stopped {runtime.url}"
        left = stop_leftovers(runtime, say)
    except PermissionError:
        raise SupervisorError(
            "the platform runs under another account; stop it as that user or root"
        ) from None
    forget(data.runtime)
    return (
        f"stopped what a killed supervisor had left: {', '.join(left)}"
        if left
        else f"nothing runs in {data.path}"
    )
