"""The platform's own processes: web, one worker per queue, and the clock that ticks them."""

import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from forebay.supervisor.addresses import answers
from forebay.supervisor.directory import CLONE, DataDirectory
from forebay.supervisor.part import Part, program
from forebay.supervisor.postgres import Postgres
from forebay.supervisor.valkey import Valkey

# -P keeps the working directory off the import path.
PYTHON = (sys.executable, "-P", "-m")
WORKER_THREADS = {"tuner": 8, "coordinator": 4, "recovery": 4}
WORKER_LOG_LEVEL = {"coordinator": "WARNING"}  # its ticks come every other second


def source_directory(data: DataDirectory) -> Path:
    """Where the processes work: the clone, or the data directory of an installed package."""
    return CLONE if (CLONE / "manage.py").is_file() else data.path


def database_part(postgres: Postgres) -> Part:
    return Part(
        "postgres",
        postgres.spawn,
        ((postgres.stop_signal, 30), (signal.SIGQUIT, 10)),
        is_ready=postgres.is_ready,
    )


def broker_part(valkey: Valkey) -> Part:
    return Part("valkey", valkey.spawn, ((valkey.stop_signal, 15),), valkey.is_ready, valkey.is_ready)


def web_part(directory: Path, environment: Mapping[str, str], listener: socket.socket) -> Part:
    """uvicorn on the supervisor's own listening socket."""
    port = listener.getsockname()[1]
    proxy = "--proxy-headers" if environment.get("FOREBAY_BEHIND_PROXY") else "--no-proxy-headers"
    command = (
        *PYTHON, "uvicorn", "web.asgi:application", "--fd", str(listener.fileno()), "--no-access-log",
        "--no-server-header", proxy, "--timeout-graceful-shutdown", "5", "--ws-max-size", "65536",
    )  # fmt: skip
    return Part(
        "web",
        program(command, environment, directory=directory, inherit=[listener.fileno()]),
        ((signal.SIGTERM, 8),),
        is_ready=lambda: answers(port, "/readyz"),
        is_healthy=lambda: answers(port, "/livez"),
    )


def worker_parts(data: DataDirectory, directory: Path, environment: Mapping[str, str]) -> list[Part]:
    """One Celery worker per queue, so that a long study never holds up a recovery, and beat.

    Threads, because tasks wait for Ray and the database; each process then holds one Ray connection.
    """
    return [_worker(queue, directory, environment) for queue in WORKER_THREADS] + [
        Part(
            "beat",
            program(
                (*PYTHON, "celery", "-A", "web", "beat", "-l", "WARNING", "--pidfile=",
                 "-s", str(data.path / "beat" / "schedule")),
                environment,
                directory=directory,
            ),
            ((signal.SIGTERM, 5),),
        )
    ]  # fmt: skip


def _worker(queue: str, directory: Path, environment: Mapping[str, str]) -> Part:
    name = f"{queue}@{socket.gethostname()}-{os.getpid()}"
    threads = str(WORKER_THREADS[queue])
    command = (
        *PYTHON, "celery", "-A", "web", "worker", "-Q", queue, "-n", name, "-P", "threads", "-c", threads,
        "--without-mingle", "--without-gossip", "-l", WORKER_LOG_LEVEL.get(queue, "INFO"),
    )  # fmt: skip
    # TERM lets a task finish, QUIT does not: its lease expires and another worker goes on from there.
    # Without a supervisor there is no database; a task that waits for it would keep the worker: hence KILL.
    return Part(
        queue,
        program(command, environment, directory=directory, on_parent_death=signal.SIGKILL),
        ((signal.SIGTERM, 6), (signal.SIGQUIT, 4)),
    )


def once_part(name: str, command: str, directory: Path, environment: Mapping[str, str]) -> Part:
    """A management command that runs beside the platform until it has succeeded once."""
    spawn = program((*PYTHON, "django", command), environment, directory=directory)
    return Part(name, spawn, ((signal.SIGTERM, 3),), once=True)
