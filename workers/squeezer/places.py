"""Where boards lie on a node."""

import os
import stat
import tempfile
from pathlib import Path

from workers.squeezer.errors import SqueezerError

FOLDER = "FOREBAY_BUBBLES"


def shared_folder() -> str | None:
    """A folder in memory, where the system has one."""
    return "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None


def boards_folder() -> Path:
    """The folder of boards: `$FOREBAY_BUBBLES`, or one of this user's in memory; made where it is missing.

    Raises SqueezerError where somebody else could write into it: whoever writes boards starts guests.
    """
    named = os.environ.get(FOLDER)
    folder = (
        Path(named)
        if named
        else Path(shared_folder() or tempfile.gettempdir()) / f"forebay-bubbles-{os.getuid()}"
    )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & stat.S_IWOTH:
        raise SqueezerError(f"{folder}: belongs to somebody else or may be written by everybody")
    return folder


def board_path(name: str) -> Path:
    """The board of that name."""
    return boards_folder() / f"{name}.board"
