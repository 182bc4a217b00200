"""Private directories for Unix sockets, short enough for the kernel."""

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from forebay.supervisor.account import Account
from forebay.supervisor.errors import SupervisorError

# sun_path of struct sockaddr_un: 108 bytes on Linux, 104 on macOS, a final NUL included.
LONGEST_SOCKET_PATH_BYTES = 103


def fits(path: Path) -> bool:
    """Whether the path can be the address of a Unix socket."""
    return len(os.fsencode(path)) <= LONGEST_SOCKET_PATH_BYTES


def socket_directory(preferred: Path, socket_name: str, account: Account) -> Path:
    """A 0700 directory of the account: the preferred one, or a short one where its path is too long."""
    if fits(preferred / socket_name):
        return account.own(preferred)
    digest = hashlib.sha256(os.fsencode(preferred)).hexdigest()[:12]
    return _claim(_short_parent(account) / f"forebay-{digest}", account)


def _short_parent(account: Account) -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and account.is_caller and Path(runtime).is_dir() and len(runtime) < 60:
        return Path(runtime)
    temporary = Path(tempfile.gettempdir())
    return temporary if len(os.fsencode(temporary)) < 60 and account.can_use(temporary) else Path("/tmp")


def _claim(path: Path, account: Account) -> Path:
    # /tmp is shared: somebody else's directory or a link under our name must never be used.
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in {os.geteuid(), account.uid}:
            raise SupervisorError(f"{path} exists and is not ours; remove it") from None
    return account.own(path)
