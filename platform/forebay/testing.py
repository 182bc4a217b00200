"""pytest plugin: a real PostgreSQL and a real Valkey for the tests, started when first needed.

Loaded with `-p forebay.testing`, before Django reads its settings, because the settings need to know
the addresses. Under pytest-xdist the controller starts the servers and its workers share them.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from forebay.supervisor.postgres import Postgres
from forebay.supervisor.valkey import Valkey

RUNTIME = "FOREBAY_TEST_RUNTIME"


def _announce() -> Path:
    """Fix the addresses of servers that do not run yet; worker processes inherit them."""
    if RUNTIME not in os.environ:
        folder = Path(tempfile.mkdtemp(prefix="fbt-", dir="/tmp"))
        # The database server may run under another account and must reach its own directory.
        folder.chmod(0o711)
        os.environ[RUNTIME] = str(folder)
        os.environ["DATABASE_URL"] = f"postgresql://forebay@/forebay?host={folder}/pg"
        os.environ["BROKER_URL"] = f"redis+socket://{folder}/valkey.sock?virtual_host=0"
        os.environ["FOREBAY_DATA"] = str(folder / "data")
        (folder / "static").mkdir()
        os.environ["FOREBAY_STATIC"] = str(folder / "static")
        os.environ.setdefault("FOREBAY_DEBUG", "true")
    return Path(os.environ[RUNTIME])


FOLDER = _announce()
OWNER_PID = os.getpid()


class Servers:
    """The test run's own servers."""

    def __init__(self) -> None:
        self.postgres: Postgres | None = None
        self.valkey: Valkey | None = None

    def start_postgres(self) -> None:
        """Start PostgreSQL unless this run already has."""
        if not (FOLDER / "pg").exists():
            self.postgres = Postgres(FOLDER / "postgres", disposable=True).start()
            (FOLDER / "pg").symlink_to(self.postgres.sockets)

    def start_valkey(self) -> None:
        """Start Valkey unless this run already has."""
        if not (FOLDER / "valkey.sock").exists():
            self.valkey = Valkey(FOLDER / "valkey", disposable=True).start()
            (FOLDER / "valkey.sock").symlink_to(self.valkey.socket)

    def stop(self) -> None:
        """Stop what this process started."""
        if self.postgres:
            self.postgres.stop()
            self.postgres.destroy()
        if self.valkey:
            self.valkey.stop()


SERVERS = Servers()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the servers for the workers of a parallel run."""
    if getattr(session.config.option, "numprocesses", None):
        SERVERS.start_postgres()
        SERVERS.start_valkey()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the servers and remove their files, in the process that announced them."""
    SERVERS.stop()
    if (
        not hasattr(config, "workerinput")
        and os.getpid() == OWNER_PID
        and "PYTEST_XDIST_WORKER" not in os.environ
    ):
        shutil.rmtree(FOLDER, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The address of a running PostgreSQL."""
    SERVERS.start_postgres()
    return os.environ["DATABASE_URL"]


@pytest.fixture(scope="session")
def valkey_server() -> str:
    """The address of a running Valkey."""
    SERVERS.start_valkey()
    return os.environ["BROKER_URL"]
