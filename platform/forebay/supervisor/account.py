"""Who runs PostgreSQL: the caller, or a system account where the caller is root.

PostgreSQL refuses to run as root. The usual way out, opening every directory above the data to the
world, is never taken here: what the account cannot reach is copied or moved to `ROOT_HOME` instead.
"""

import grp
import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.supervisor.errors import SupervisorError

DEFAULT_NAME = "forebay"
ROOT_HOME = Path("/var/lib/forebay")


def root_home() -> Path:
    """`ROOT_HOME`, which every account may pass and nobody but root may list, whatever the umask."""
    ROOT_HOME.mkdir(parents=True, exist_ok=True)
    ROOT_HOME.chmod(0o711)
    return ROOT_HOME


@dataclass(frozen=True)
class Account:
    """An operating system account."""

    name: str
    uid: int
    gid: int

    @property
    def is_caller(self) -> bool:
        return self.uid == os.geteuid()

    def popen_options(self) -> dict[str, Any]:
        """Options that make `subprocess` run a program as this account."""
        if self.is_caller:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path, mode: int = 0o700) -> Path:
        """Create the directory if needed and give it to this account alone; never through a link."""
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise SupervisorError(f"{path} must be a directory that we can open: {error.strerror}") from None
        try:
            if not self.is_caller:
                os.fchown(handle, self.uid, self.gid)
            os.fchmod(handle, mode)
        finally:
            os.close(handle)
        return path

    def write(self, path: Path, text: str) -> None:
        """Replace a file by one of this account, 0600; a link in its place is removed, not followed."""
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w") as file:
            if not self.is_caller:
                os.fchown(handle, self.uid, self.gid)
            file.write(text)

    def can_pass(self, directory: Path) -> bool:
        """Whether the account may reach what lies in the directory."""
        resolved = directory.resolve()
        return all(self._may(path, 0o1) for path in (resolved, *resolved.parents))

    def can_use(self, path: Path) -> bool:
        """Whether the account may reach the path and read it."""
        wanted = 0o5 if path.is_dir() else 0o4
        return self.can_pass(path.resolve().parent) and self._may(path.resolve(), wanted)

    def _may(self, path: Path, wanted: int) -> bool:
        if self.uid == 0:
            return True
        status = path.stat()
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid == self.uid:
            mode >>= 6
        elif status.st_gid == self.gid:
            mode >>= 3
        return mode & wanted == wanted


def caller() -> Account:
    """The account of this process."""
    uid = os.geteuid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise SupervisorError(
            f"user id {uid} has no entry in /etc/passwd, which PostgreSQL needs; add one or set DATABASE_URL"
        ) from None
    return Account(entry.pw_name, uid, entry.pw_gid)


def named(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def owner_of(path: Path) -> Account:
    """The account that owns a path."""
    status = path.stat()
    try:
        name = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        raise SupervisorError(f"{path} belongs to user id {status.st_uid}, which /etc/passwd lacks") from None
    return Account(name, status.st_uid, status.st_gid)


def service_account() -> Account:
    """The account PostgreSQL runs under: the caller's own, or for root a system account.

    Root's is named by FOREBAY_SERVICE_USER (default `forebay`) and made with `useradd` if it is missing.
    """
    if os.geteuid() != 0:
        return caller()
    name = os.environ.get("FOREBAY_SERVICE_USER", DEFAULT_NAME)
    account = named(name) or _create(name)
    if account.uid == 0:
        raise SupervisorError("FOREBAY_SERVICE_USER must not be root: PostgreSQL refuses to run as root")
    return account


def _create(name: str) -> Account:
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if useradd is None:
        raise SupervisorError(
            "root needs a system account for PostgreSQL and `useradd` is missing: run as an ordinary user, "
            "name an existing account in FOREBAY_SERVICE_USER, or set DATABASE_URL"
        )
    options = ["--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"]
    group = ["--gid", name] if _has_group(name) else ["--user-group"]
    made = subprocess.run([useradd, *options, *group, name], capture_output=True, text=True, check=False)
    account = named(name)
    if account is None:
        raise SupervisorError(f"useradd could not create the account {name}: {made.stderr.strip()}")
    return account


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
