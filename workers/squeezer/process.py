"""The squeezer as a process of its own, and the handle by which another process talks to it."""

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from workers.squeezer.places import shared_folder
from workers.squeezer.processes import lives
from workers.squeezer.rules import Rules
from workers.squeezer.squeezer import Squeezer

GATES = "forebay-gates-"


class SqueezerProcess:
    """A squeezer on this node; ends with this process. Not thread-safe."""

    def __init__(self, rules: Rules | None = None) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "workers.squeezer.process", "--pipe", str(theirs.fileno())]
        self.process = subprocess.Popen(
            [*command, "--parent", str(os.getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        theirs.close()
        self._pipe = Connection(ours.detach())
        self.ask("rules", rules or Rules())

    def ask(self, *request: Any) -> None:
        """Hand in a request; see `Squeezer.ask`. Does nothing where the squeezer is gone."""
        with contextlib.suppress(OSError):
            self._pipe.send(request)

    def hear(self, timeout_s: float = 0.0) -> list[tuple[Any, ...]]:
        """Return what it has said, waiting at most `timeout_s` if that is nothing yet."""
        heard: list[tuple[Any, ...]] = []
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll(0.0 if heard else timeout_s):
                heard.append(self._pipe.recv())
        return heard

    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def close(self) -> None:
        """End it and its guests."""
        self._pipe.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def main() -> None:
    """Serve until the pipe closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pipe", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    arguments = parser.parse_args()
    pipe = Connection(arguments.pipe)
    clear_away()
    prefix = f"{GATES}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=shared_folder()) as folder:
        squeezer = Squeezer(Path(folder), pipe.send, parent=arguments.parent)
        threading.Thread(target=_listen, args=(pipe, squeezer), name="requests", daemon=True).start()
        squeezer.run()


def clear_away() -> None:
    """Remove the gates that squeezers of this user left when they were killed."""
    for folder in Path(shared_folder() or tempfile.gettempdir()).glob(f"{GATES}*"):
        owner = folder.name.removeprefix(GATES).partition("-")[0]
        with contextlib.suppress(OSError):
            if owner.isdigit() and not lives(int(owner), 0) and folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


def _listen(pipe: Connection, squeezer: Squeezer) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            squeezer.ask(pipe.recv())
    squeezer.ask(None)


if __name__ == "__main__":
    main()
