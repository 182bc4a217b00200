"""Where the platform listens, and whether it answers there."""

import contextlib
import http.client
import socket
from pathlib import Path

from forebay.supervisor.errors import BadSetting, SupervisorError

HOST = "127.0.0.1"
USUAL_PORT = 8642


def listen(port: int | None, remembered: Path) -> socket.socket:
    """Open the listening socket: on the port asked for, else the last one, the usual one, any free one.

    The supervisor holds the socket, so connections made while the web process restarts wait for it.
    """
    if port is not None:
        try:
            return _bind(port)
        except OSError as error:
            raise BadSetting(f"--port {port} cannot be used: {error.strerror}") from None
    for candidate in (_last_port(remembered), USUAL_PORT, 0):
        with contextlib.suppress(OSError):
            bound = _bind(candidate)
            remembered.write_text(str(bound.getsockname()[1]))
            return bound
    raise SupervisorError(f"no free port on {HOST}")


def _last_port(remembered: Path) -> int:
    try:
        port = int(remembered.read_text())
    except (OSError, ValueError):
        return USUAL_PORT
    return port if 1024 <= port <= 65535 else USUAL_PORT


def _bind(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((HOST, port))
        bound.listen(1024)
    except OSError:
        bound.close()
        raise
    return bound


def answers(port: int, path: str, seconds: float = 2.0) -> bool:
    """Whether GET on this machine gives 200, or sends us to https where the platform insists on it."""
    connection = http.client.HTTPConnection(HOST, port, timeout=seconds)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        to_https = (response.getheader("Location") or "").startswith("https://")
        return response.status == 200 or (response.status in {301, 308} and to_https)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
