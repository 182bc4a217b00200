"""Valkey from its wheel: the broker, on a private Unix socket, with an append-only file."""

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, Self
from urllib.parse import quote

from forebay.supervisor.account import caller
from forebay.supervisor.errors import CannotStart
from forebay.supervisor.process import (
    Identity,
    follow_parent,
    identify,
    tail,
    wait_until_gone,
    was_started_with,
)
from forebay.supervisor.programs import valkey_program
from forebay.supervisor.sockets import socket_directory

SOCKET_NAME = "valkey.sock"


class Valkey:
    """A Valkey server for the directory, as a context manager or by `start` and `stop`; no TCP.

    A disposable server is for tests: it keeps nothing on disk.
    """

    stop_signal = signal.SIGTERM

    def __init__(self, directory: Path, *, disposable: bool = False, log: Path | None = None) -> None:
        self.directory = Path(directory).absolute()
        self.disposable = disposable
        self.log = log or self.directory.with_name(f"{self.directory.name}.log")
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def socket(self) -> Path:
        return self.sockets / SOCKET_NAME

    @property
    def url(self) -> str:
        return f"redis+socket://{quote(str(self.socket), safe='/')}?virtual_host=0"

    def start(self, seconds: float = 30) -> Self:
        """Start the server and wait until it answers."""
        self.prepare()
        with open(self.log, "ab") as log:
            self.process = self.spawn(log)
        deadline = time.monotonic() + seconds
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise CannotStart("Valkey", tail(self.log) or "its log is empty")
            time.sleep(0.02)
        return self

    def stop(self, seconds: float = 15) -> None:
        """Stop the server that `start` started."""
        if self.process is None:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def destroy(self) -> None:
        """Delete a stopped server's data."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def prepare(self) -> None:
        """Everything before the server runs: its directories, an orphan stopped."""
        me = caller()
        me.own(self.directory)
        self.sockets = socket_directory(self.directory / "run", SOCKET_NAME, me)
        self.program = valkey_program()
        self.stop_orphan()

    def spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the server without waiting; should this process die, the kernel stops it cleanly."""
        settings = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "pidfile": str(self.directory / "valkey.pid"),
            "daemonize": "no",
            "set-proc-title": "no",  # a left-over server is recognised by its command line
            "save": "",
            "appendonly": "no" if self.disposable else "yes",
            "appendfsync": "everysec",
        }
        options = [part for key, value in settings.items() for part in (f"--{key}", value)]
        return subprocess.Popen(
            [self.program, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.directory,
            start_new_session=True,
            preexec_fn=follow_parent(self.stop_signal),
        )

    def is_ready(self) -> bool:
        """Whether the server answers a PING; while it still loads its file it does not."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def orphan(self) -> Identity | None:
        """A server of this very directory that a dead supervisor left behind."""
        try:
            identity = identify(int((self.directory / "valkey.pid").read_text()))
        except (OSError, ValueError):
            return None
        return identity if identity and was_started_with(identity.pid, self.directory) else None

    def stop_orphan(self, seconds: float = 15) -> None:
        """Stop a left-over server: two of them would write one append-only file."""
        identity = self.orphan()
        if identity is None:
            return
        identity.send(self.stop_signal)
        if wait_until_gone([identity], seconds):
            identity.send(signal.SIGKILL)
            wait_until_gone([identity], 5)
