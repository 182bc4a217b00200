"""Running the platform in this process, or in one of its own that stays behind."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.environment import Given, part_environment
from forebay.supervisor.errors import AlreadyRunning, SupervisorError
from forebay.supervisor.logs import JoinedLog
from forebay.supervisor.parts import source_directory
from forebay.supervisor.process import tail
from forebay.supervisor.runtime import READY, Runtime, read_runtime, running
from forebay.supervisor.steps import Command
from forebay.supervisor.supervisor import Options, Supervisor


def run_here(
    data: DataDirectory,
    given: Given,
    options: Options,
    on_ready: Callable[[Runtime], None],
    say: Callable[[str], None],
) -> None:
    """Run the platform until it is asked to stop."""
    os.umask(0o077)
    data.create()
    with data.locked() as is_ours:
        if not is_ours:
            raise already_running(data)
        if options.reset:
            data.delete_contents()
            data.create()
        log = JoinedLog(data.logs, say, everything=options.verbose)
        try:
            Supervisor(data, given, options, log).run(on_ready)
        finally:
            log.close()


def run_detached(data: DataDirectory, options: Options) -> Runtime:
    """Start a process that runs the platform, wait until it answers, and leave it."""
    os.umask(0o077)
    data.create()
    if running(data.runtime):
        raise already_running(data)
    log = data.logs / "supervisor.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "forebay.cli.main",
                "up",
                "--data-dir",
                data.path,
                *options.arguments(),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    while process.poll() is None:
        runtime = running(data.runtime)
        if runtime and runtime.supervisor.pid == process.pid and runtime.state == READY:
            return runtime
        time.sleep(0.05)
    if running(data.runtime):
        raise already_running(data)
    raise SupervisorError(tail(log).removeprefix("Error: ") or f"the supervisor ended; see {data.logs}")


def already_running(data: DataDirectory) -> AlreadyRunning:
    """The error for a second start, with a fresh link to sign in where the first one serves pages."""
    runtime = read_runtime(data.runtime)
    if runtime is None or runtime.state != READY:
        return AlreadyRunning(data.path, runtime.url if runtime else None)
    environment = part_environment(
        data, port=runtime.port, database_url=runtime.database_url, broker_url=runtime.broker_url
    )
    try:
        path = Command(("login_link",), source_directory(data), environment, _log(data)).answer()
    except SupervisorError:
        return AlreadyRunning(data.path, runtime.url)
    return AlreadyRunning(data.path, runtime.url, path if "://" in path else runtime.site + path)


def _log(data: DataDirectory) -> Path:
    return data.logs / "commands.log"
