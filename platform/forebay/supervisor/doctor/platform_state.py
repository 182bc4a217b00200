"""What runs or is left of a platform here: its port, its lock, its processes, data nobody points to."""

import os
import socket
from pathlib import Path

from forebay.supervisor.account import ROOT_HOME
from forebay.supervisor.addresses import HOST, USUAL_PORT
from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.doctor.finding import Finding, blocks, ok, warning
from forebay.supervisor.runtime import Runtime, read_runtime


def findings(data: DataDirectory, port: int | None) -> list[Finding]:
    runtime = read_runtime(data.runtime)
    found = [data_directory(data), running(data, runtime)]
    if runtime is None or not runtime.is_alive():
        found.append(port_is_free(port))
    return [*found, *([unreferenced(ROOT_HOME)] if os.geteuid() == 0 else [])]


def data_directory(data: DataDirectory) -> Finding:
    place = next(path for path in (data.path, *data.path.parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return blocks("data directory", f"{place} is not writable for you", "choose another with --data-dir")
    return ok("data directory", str(data.path) + ("" if place == data.path else ", not there yet"))


def running(data: DataDirectory, runtime: Runtime | None) -> Finding:
    """Whether a platform runs here, or a killed supervisor has left something."""
    if runtime is None:
        return ok("running", "nothing runs here")
    if runtime.is_alive():
        restarts = sum(runtime.restarts.values())
        return ok("running", f"{runtime.state} at {runtime.url}, {restarts} restarts of its parts")
    left = ", ".join(runtime.leftovers()) or "nothing"
    return warning(
        "running",
        f"a supervisor (process {runtime.supervisor.pid}) was killed; still running of it: {left}",
        "`forebay up` cleans up and starts again, `forebay down` only cleans up",
    )


def port_is_free(port: int | None) -> Finding:
    wanted = port or USUAL_PORT
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            if port is None:
                return ok("port", f"{wanted} is taken; `forebay up` picks another")
            return blocks("port", f"{port}: {error.strerror}", "choose another with --port")
    return ok("port", f"{wanted} is free")


def unreferenced(home: Path) -> Finding:
    """Clusters of deleted data directories: as root they may lie apart, and only a link leads to them."""
    lost = [path for path in home.glob("postgres-*") if not _is_linked(path)]
    if lost:
        names = " ".join(map(str, lost))
        return warning(
            "left-over data", f"no data directory points to {names}", f"delete them: rm -r {names}"
        )
    return ok("left-over data", "none")


def _is_linked(cluster: Path) -> bool:
    try:
        link = Path((cluster / "linked-from").read_text())
        return link.resolve() == cluster.resolve()
    except OSError:
        return False
