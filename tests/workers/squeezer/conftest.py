"""Real owners, squeezers and guests, each of them a process; whatever a test leaves is ended."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workers.squeezer.board import Board
from workers.squeezer.guests import GuestOrder
from workers.squeezer.process import SqueezerProcess
from workers.squeezer.processes import lives
from workers.squeezer.rules import Rules

HERE = Path(__file__).parent
PATIENCE_S = 120.0


class Setting:
    """An owner with its board, a squeezer, and what it has said."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.board = folder, folder / "a.board"
        self.said: list[tuple] = []
        self.processes: list[subprocess.Popen] = []
        self.squeezer: SqueezerProcess | None = None

    @staticmethod
    def wait_for(condition: Callable[[], object]) -> object:
        """Wait until something holds, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            assert time.monotonic() < deadline, "what the test waits for does not come"
            time.sleep(0.01)
        return found

    @staticmethod
    def gone(pid: int) -> bool:
        """Whether no such process runs any more."""
        return not lives(pid, 0)

    @staticmethod
    def child_of(pid: int) -> int | None:
        """A process whose parent is that one."""
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(entry.read_text().rpartition(")")[2].split()[1]) == pid:
                    return int(entry.parent.name)
        return None

    @staticmethod
    def state_of(pid: int) -> str:
        """The letter by which the kernel calls a process's state."""
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    def own(self, fault: str = "") -> subprocess.Popen:
        with open(self.folder / "owner.log", "w") as log:
            command = [sys.executable, str(HERE / "owner_program.py"), str(self.board), fault]
            owner = subprocess.Popen(command, stdout=log)
        self.processes.append(owner)
        self.wait_for(self.board.exists)
        return owner

    def squeeze(self, **rules: object) -> SqueezerProcess:
        self.squeezer = SqueezerProcess(Rules(**{"control_every": 0, "reserve_bytes": 0, **rules}))
        self.squeezer.ask("board", str(self.board))
        return self.squeezer

    def invite(self, behaviour: str, scheduling: str = "normal", **order: object) -> int:
        """Start a guest; returns its process number."""
        name = f"guest-{behaviour}"
        path = os.pathsep.join([str(HERE), str(HERE.parents[2])])
        assert self.squeezer is not None
        self.squeezer.ask(
            "guest",
            GuestOrder(
                name,
                str(self.board),
                step_s=0.001,
                scheduling=scheduling,
                module="guest_program",
                arguments=(behaviour,),
                environment={"PYTHONPATH": path},
                **order,
            ),
        )
        return int(self.heard("started", name)[2])

    def heard(self, kind: str, name: str) -> tuple:
        """Wait for the squeezer to say something of somebody."""

        def find() -> tuple | None:
            assert self.squeezer is not None
            self.said += self.squeezer.hear(0.05)
            return next((row for row in self.said if row[:2] == (kind, name)), None)

        return self.wait_for(find)

    def iterations(self) -> int:
        """How far the owner has come."""
        return len((self.folder / "owner.log").read_text().split())

    def goes_on(self) -> bool:
        """Wait until the owner has done ten more iterations."""
        before = self.iterations()
        return bool(self.wait_for(lambda: self.iterations() >= before + 10))

    def used_ns(self) -> int:
        """Processor time of guests in bubbles."""
        return Board(self.board).totals().used_ns


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    found = Setting(tmp_path)
    yield found
    if found.squeezer is not None and found.squeezer.alive():
        found.squeezer.close()
    for process in found.processes:
        process.kill()
        process.wait()
