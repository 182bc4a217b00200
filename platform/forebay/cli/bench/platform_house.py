"""A platform of the bench's own: real processes in a directory that is deleted afterwards."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx

from forebay.cli.errors import CommandError, Exit
from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.environment import part_environment
from forebay.supervisor.errors import SupervisorError
from forebay.supervisor.parts import PYTHON, source_directory
from forebay.supervisor.process import follow_parent, tail
from forebay.supervisor.runtime import READY, Runtime, running
from forebay.supervisor.steps import Command
from forebay.supervisor.stopping import stop_platform

START_LIMIT_S = 180.0
STOP_LIMIT_S = 90.0
POLL_S = 0.02
# Less than this share of one core, over a second, is idle.
IDLE_SHARE = 0.1
OTHERS = ("FOREBAY_", "DATABASE_URL", "BROKER_URL", "RAY_")


@contextlib.contextmanager
def own_environment() -> Iterator[None]:
    """Hide what the caller's environment says about other platforms; the defaults are measured."""
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(OTHERS)}
    try:
        yield
    finally:
        os.environ.update(hidden)


class House:
    """One platform, started and stopped as often as needed; leaving the context ends and deletes it."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="fb-"))
        if os.geteuid() == 0:  # PostgreSQL's own account passes through
            self.root.chmod(0o711)
        self.data = DataDirectory(self.root / "data")
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.data.delete_contents()
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def runtime(self) -> Runtime:
        """What runs now."""
        found = running(self.data.runtime)
        if found is None:
            raise CommandError(f"the platform has ended: {tail(self.root / 'up.log')}", Exit.FAILED)
        return found

    def start(self) -> tuple[float, float]:
        """Start the platform; return seconds until /readyz says yes and until the login link is printed."""
        with httpx.Client(timeout=1.0) as http:
            began = time.perf_counter()
            self.process = self._spawn()
            url = self._await(lambda: getattr(running(self.data.runtime), "url", ""))
            self._await(lambda: _is_ready(http, f"{url}/readyz"))
        answered = time.perf_counter() - began
        self._await(lambda: self.runtime.state == READY)
        return answered, time.perf_counter() - began

    def _spawn(self) -> "subprocess.Popen[bytes]":
        with (self.root / "up.log").open("wb") as log:
            return subprocess.Popen(
                [*PYTHON, "forebay.cli.main", "up", "--no-demo", "--data-dir", str(self.data.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"TMPDIR": str(self.root)},  # where Ray leaves its session behind
                start_new_session=True,  # Ctrl-C is for the bench, which then stops the platform in order
                preexec_fn=follow_parent(signal.SIGTERM),
            )

    def _await(self, condition: Any) -> Any:
        deadline = time.monotonic() + START_LIMIT_S
        while not (found := condition()):
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                words = tail(self.root / "up.log") or "no reason given"
                raise CommandError(f"the platform does not start: {words}", Exit.FAILED)
            time.sleep(POLL_S)
        return found

    def stop(self) -> None:
        """Stop the platform in order; nothing of it is left."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        with contextlib.suppress(SupervisorError):
            stop_platform(self.data, lambda _: None)

    def clear(self) -> None:
        """Delete all data, so that the next start is the first."""
        self.data.delete_contents()

    def client(self) -> httpx.Client:
        """Return an HTTP client with the administrator's token."""
        token = self.data.token.read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        return httpx.Client(base_url=self.runtime.url, headers=headers, timeout=60.0)

    def command(self, *arguments: str) -> Command:
        """Start a management command on this platform."""
        runtime = self.runtime
        environment = part_environment(
            self.data, port=runtime.port, database_url=runtime.database_url, broker_url=runtime.broker_url
        )
        return Command(arguments, source_directory(self.data), environment, self.data.logs / "bench.log")

    def manage(self, *arguments: str) -> dict[str, Any]:
        """Run a management command and return the JSON document that it prints last."""
        command = self.command(*arguments)
        try:
            document: dict[str, Any] = json.loads(command.answer())
            return document
        finally:
            command.abandon()

    def settle(self, limit_s: float = 60.0) -> None:
        """Wait until the platform itself has nothing to do, however busy the machine is otherwise."""
        deadline, quiet_s = time.monotonic() + limit_s, 0
        while quiet_s < 2 and time.monotonic() < deadline:
            before = {pid: cpu_seconds(pid) for pid in self.processes()}
            time.sleep(1.0)
            spent = sum(cpu_seconds(pid) - before.get(pid, 0.0) for pid in self.processes())
            quiet_s = quiet_s + 1 if spent < IDLE_SHARE else 0

    def processes(self) -> dict[int, str]:
        """Return process id -> part for every process of the platform, the supervisor's included."""
        runtime = self.runtime
        named = {runtime.supervisor.pid: "supervisor"}
        named |= {part.pid: name for name, part in runtime.parts.items()}
        parents = _parents()
        found: dict[int, str] = {}
        for pid in parents:
            above: int | None = pid
            while above is not None and above not in named:
                above = parents.get(above)
            if above is not None:
                found[pid] = named[above]
        return found

    def cpu_seconds_of(self, part: str) -> float:
        """Return the processor time of a part's own process, all threads, its children not included."""
        return cpu_seconds(self.runtime.parts[part].pid)

    @contextlib.contextmanager
    def paused(self, part: str) -> Iterator[None]:
        """Hold a part still for a while."""
        identity = self.runtime.parts[part]
        identity.send(signal.SIGSTOP)
        try:
            yield
        finally:
            identity.send(signal.SIGCONT)


def has_proc() -> bool:
    """Whether this system tells memory and processor time of processes as Linux does."""
    return sys.platform.startswith("linux") and Path("/proc/self/smaps_rollup").exists()


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process so far; 0 for one that has ended."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def memory_bytes(pid: int) -> tuple[int, int]:
    """Return resident (RSS) and proportional (PSS) memory of a process, in bytes."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines[1:] if line.endswith("kB")}
    return sizes.get("Rss", 0), sizes.get("Pss", 0)


def _parents() -> dict[int, int]:
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        if fields := _stat(int(entry.name)):
            found[int(entry.name)] = int(fields[1])
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return line[line.rindex(")") + 2 :].split()


def _is_ready(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(url).status_code == 200
    except httpx.HTTPError:
        return False
