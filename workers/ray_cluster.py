"""Ray: local and loopback by default, started when first needed; a remote one only with a token."""

import atexit
import contextlib
import hashlib
import os
import secrets
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import structlog
from django.conf import settings

# Ray reads how to authenticate when it is imported, and the default is not at all.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = settings.RAY_AUTH_TOKEN or secrets.token_hex(32)

import ray  # noqa: E402

log = structlog.get_logger(__name__)
OBJECT_STORE_BYTES = 200_000_000
LEAVE_S = 1.0
_starting = threading.Lock()
# Ray's local processes die with the thread that started them, so that thread must live as long as the worker.
_keeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray")


class RayRefused(Exception):
    """Ray cannot be used as configured."""


def connect() -> None:
    """Connect this process to Ray, starting a local one if no address is configured."""
    with _starting:
        if not ray.is_initialized():
            _keeper.submit(_init).result()


def _init() -> None:
    if settings.RAY_ADDRESS and not settings.RAY_AUTH_TOKEN:
        raise RayRefused(
            "RAY_ADDRESS is set but RAY_AUTH_TOKEN is not: a remote Ray without a token is refused"
        )
    if settings.RAY_ADDRESS:
        ray.init(address=settings.RAY_ADDRESS, namespace="forebay", log_to_driver=False)
        return
    log.info("ray.starting")
    folder = _short_directory()
    _forget_sessions(folder)  # what a killed worker left
    family: list[psutil.Process] = []
    atexit.register(_leave, folder, family)
    ray.init(
        namespace="forebay",
        include_dashboard=False,
        num_cpus=max(4, 2 * (os.cpu_count() or 1)),
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        _temp_dir=str(folder),
        _node_ip_address="127.0.0.1",
    )
    family += _family(folder)
    log.info("ray.started")


def _short_directory() -> Path:
    """Return a private directory whose path leaves room for Ray's socket names (107 bytes in all)."""
    digest = hashlib.sha256(str(settings.DATA_DIR).encode()).hexdigest()[:8]
    folder = Path(tempfile.gettempdir()) / f"fb-ray-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise RayRefused(f"{folder} belongs to somebody else; remove it")
    return folder


def _forget_sessions(folder: Path) -> None:
    """Delete logs and sockets of sessions whose process is gone; a session's name ends with its number."""
    for entry in folder.iterdir():
        owner = entry.name.rpartition("_")[2]
        if entry.is_symlink() and not entry.exists():
            entry.unlink(missing_ok=True)
        elif entry.is_dir() and owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(entry, ignore_errors=True)


def _leave(folder: Path, family: list[psutil.Process]) -> None:
    """Stop the local Ray with this process and leave nothing behind; `family` are its processes."""
    ray.shutdown()
    # its agents want to tell Ray how Ray has ended, and would wait for an answer
    _, left = psutil.wait_procs(family, timeout=LEAVE_S)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    with contextlib.suppress(OSError):  # another process has a session here, or has removed it all
        for session in folder.glob(f"session_*_{os.getpid()}"):
            shutil.rmtree(session, ignore_errors=True)
        _forget_sessions(folder)
        folder.rmdir()


def _family(folder: Path) -> list[psutil.Process]:
    """Return the processes of the local Ray that keeps its session in a folder."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in word for word in child.cmdline()):
                found += [child, *child.children(recursive=True)]
    return found


def nodes() -> list[dict[str, Any]]:
    """Return what Ray says of its nodes."""
    connect()
    found: list[dict[str, Any]] = ray.nodes()
    return found
