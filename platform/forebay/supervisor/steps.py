"""Management commands at the start, and which of them the last start has made unnecessary."""

import hashlib
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from forebay.supervisor.credentials import store_secret
from forebay.supervisor.directory import CLONE, DataDirectory
from forebay.supervisor.errors import CannotStart, StopRequested
from forebay.supervisor.logs import JoinedLog
from forebay.supervisor.parts import PYTHON
from forebay.supervisor.process import follow_parent, tail


def fingerprint(*facts: str, files: list[Path] | None = None) -> str:
    """One value for texts and for files by path, size and time of change."""
    digest = hashlib.sha256("\0".join(facts).encode())
    for path in sorted(files or []):
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def migration_files(clone: Path) -> list[Path]:
    """Every migration of our own folders."""
    return [
        path
        for pattern in ("*/migrations/*.py", "platform/*/migrations/*.py")
        for path in clone.glob(pattern)
    ]


def static_files(clone: Path) -> list[Path]:
    """Every static file of our own."""
    return [path for path in (clone / "frontend" / "static").rglob("*") if path.is_file()]


def is_current(record: Path, value: str) -> bool:
    """Whether a step was last done for exactly this state of things."""
    try:
        return record.read_text() == value
    except OSError:
        return False


class Command:
    """A management command under way; the last line it prints is its answer, the rest goes to the log."""

    def __init__(
        self, arguments: tuple[str, ...], directory: Path, environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = arguments[0]
        self.log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*PYTHON, "django", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=directory,
                env=dict(environment),
                start_new_session=True,
                preexec_fn=follow_parent(signal.SIGTERM),
            )

    def answer(self, is_stopping: Callable[[], bool] = lambda: False) -> str:
        """Wait for the end and return the last line; raise where the command failed or we are to stop."""
        output = self._output(is_stopping).decode(errors="replace")
        if self.process.returncode != 0:
            raise CannotStart(f"`{self.name}`", f"{output.strip()}\n{tail(self.log)}".strip())
        return output.strip().splitlines()[-1].strip() if output.strip() else ""

    def _output(self, is_stopping: Callable[[], bool]) -> bytes:
        while True:
            try:
                return self.process.communicate(timeout=0.1)[0]
            except subprocess.TimeoutExpired:
                if is_stopping():
                    raise StopRequested from None

    def abandon(self) -> None:
        """End the command if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@dataclass(frozen=True)
class Step:
    """A command under way, and the record that makes it unnecessary the next time."""

    command: Command
    record: Path
    value: str

    def finish(self, is_stopping: Callable[[], bool]) -> None:
        """Wait for the command and remember that it has been done."""
        self.command.answer(is_stopping)
        self.record.write_text(self.value)


class Steps:
    """What has to be done once per state of the code and the database, before the platform serves pages."""

    def __init__(
        self, data: DataDirectory, directory: Path, environment: Mapping[str, str], log: JoinedLog
    ) -> None:
        self.data = data
        self.directory = directory
        self.environment = environment
        self.log = log
        self.commands: list[Command] = []
        lock = CLONE / "requirements.lock"
        self._versions = [lock] if lock.is_file() else []

    def command(self, *arguments: str) -> Command:
        """Start a management command."""
        started = Command(arguments, self.directory, self.environment, self.log.file_of("commands"))
        self.commands.append(started)
        return started

    def collect_static_files(self) -> Step | None:
        """Start to collect them, unless nothing has changed since."""
        root = Path(self.environment["FOREBAY_STATIC"])
        record = self.data.state / "static"
        value = fingerprint(str(root), files=static_files(CLONE) + self._versions)
        if is_current(record, value) and root.is_dir():
            return None
        self.log.say("preparing static files")
        return Step(self.command("collectstatic", "--noinput", "--clear"), record, value)

    def migrate(self, *, is_embedded: bool) -> Step | None:
        """Start to migrate the database, unless nothing has changed since.

        A database that is not ours is always asked, because others change it too.
        """
        record, value = self.data.state / "migrations", self._database_state()
        if is_embedded and is_current(record, value):
            return None
        self.log.say("preparing the database")
        return Step(self.command("migrate", "--noinput"), record, value)

    def abandon(self) -> None:
        """End the commands that still run."""
        for command in self.commands:
            command.abandon()

    def ensure_token(self, is_stopping: Callable[[], bool]) -> None:
        """Store an API token of the local user, unless there is one for this very database."""
        record, value = (
            self.data.state / "token",
            fingerprint(self.environment["DATABASE_URL"], *self._cluster()),
        )
        if self.data.token.exists() and is_current(record, value):
            return
        store_secret(self.data.token, self.command("local_token").answer(is_stopping))
        record.write_text(value)

    def _database_state(self) -> str:
        return fingerprint(
            self.environment["DATABASE_URL"], *self._cluster(), files=migration_files(CLONE) + self._versions
        )

    def _cluster(self) -> list[str]:
        made = self.data.postgres / "data" / "PG_VERSION"
        return [str(made.stat().st_mtime_ns)] if made.exists() else []
