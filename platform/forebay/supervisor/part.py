"""A part of the platform as the supervisor sees it: how it starts, when it is ready, how it ends."""

import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from forebay.supervisor.process import follow_parent


@dataclass(frozen=True)
class Part:
    """One process with its children.

    `stop` lists signals and how many seconds each is given; SIGKILL to the whole group follows.
    `is_healthy` is asked every few seconds once the part is ready. A part that runs `once` is done
    when it exits with 0.
    """

    name: str
    spawn: Callable[[IO[bytes]], "subprocess.Popen[bytes]"]
    stop: tuple[tuple[signal.Signals, float], ...] = ((signal.SIGTERM, 10),)
    is_ready: Callable[[], bool] = lambda: True
    is_healthy: Callable[[], bool] | None = None
    once: bool = False


def program(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    *,
    directory: Path,
    on_parent_death: signal.Signals = signal.SIGTERM,
    inherit: Sequence[int] = (),
) -> Callable[[IO[bytes]], "subprocess.Popen[bytes]"]:
    """A `spawn` for an ordinary program in a process group of its own; it ends with its supervisor."""

    def spawn(log: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env=dict(environment),
            start_new_session=True,
            pass_fds=tuple(inherit),
            preexec_fn=follow_parent(on_parent_death),
        )

    return spawn
