"""The data directory: everything one installation keeps, and where each part of it lies."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import forebay
from forebay.supervisor.errors import SupervisorError
from forebay.supervisor.postgres import Postgres

CLONE = Path(forebay.__file__).resolve().parents[2]
# What `--reset` deletes, the lock it holds aside; a file of the user's own that lies beside stays.
CONTENTS = (
    "runtime.json", ".runtime.json", "secret_key", "ray_token", "token", "logs", "valkey", "state", "static",
    "artifacts", "beat",
)  # fmt: skip


@dataclass(frozen=True)
class DataDirectory:
    """One installation's data."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path.expanduser().absolute())

    @property
    def lock(self) -> Path:
        return self.path / "forebay.lock"

    @property
    def runtime(self) -> Path:
        return self.path / "runtime.json"

    @property
    def secret_key(self) -> Path:
        return self.path / "secret_key"

    @property
    def ray_token(self) -> Path:
        return self.path / "ray_token"

    @property
    def token(self) -> Path:
        """The API token of the user who runs the platform here."""
        return self.path / "token"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def state(self) -> Path:
        """What the supervisor remembers between starts: the port, and which steps need no repeating."""
        return self.path / "state"

    @property
    def postgres(self) -> Path:
        return self.path / "postgres"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def valkey(self) -> Path:
        return self.path / "valkey"

    @property
    def static(self) -> Path:
        return self.path / "static"

    def create(self) -> None:
        """Create the directory and its private parts."""
        # As root PostgreSQL has an account of its own, which must be able to pass through.
        mode = 0o711 if os.geteuid() == 0 else 0o700
        try:
            if not self.path.exists():
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.path.chmod(mode)
            for part in (self.logs, self.state, self.artifacts, self.path / "beat"):
                part.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SupervisorError(f"cannot create the data directory {self.path}: {error.strerror}") from None
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise SupervisorError(f"the data directory {self.path} is not writable for you")

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the directory against a second supervisor; yields whether that worked.

        The kernel drops the lock with the process, so a lock left by `kill -9` cannot exist.
        """
        try:
            handle = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SupervisorError(f"cannot open {self.lock}: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(handle)

    def delete_contents(self) -> None:
        """Delete all data of a platform that does not run."""
        Postgres(self.postgres).destroy()
        for name in CONTENTS:
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def find_data_directory(option: Path | str | None = None) -> DataDirectory:
    """The data directory: as given, else FOREBAY_DATA, else the clone's `.forebay`, else the home's."""
    given = option or os.environ.get("FOREBAY_DATA")
    if given:
        return DataDirectory(Path(given))
    of_clone = CLONE / ".forebay"
    if (CLONE / "manage.py").is_file() and of_clone.is_dir():
        return DataDirectory(of_clone)
    return DataDirectory(Path("~/.local/share/forebay"))
