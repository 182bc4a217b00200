"""Finding the server: as given, from the environment, from `forebay login`, or the one that runs here."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class NoServer(Exception):
    """No server is known."""


class NoToken(NoServer):
    """A server is known, but nothing to sign in with."""


class BadAddress(NoServer):
    """What is given as a server is no address."""


@dataclass(frozen=True)
class Server:
    """Where requests go and the token they carry."""

    url: str
    token: str


def find_server(url: str | None = None, token: str | None = None) -> Server:
    """Return the server to talk to; raise NoServer, NoToken or BadAddress.

    What is given wins, then FOREBAY_URL and FOREBAY_TOKEN, then the last `forebay login`, then the
    platform that runs on this machine with this user's data directory.
    """
    url = checked_url(url or os.environ.get("FOREBAY_URL"))
    token = token or os.environ.get("FOREBAY_TOKEN")
    known = [*remembered(), *_local()]
    if url is None:
        if not known:
            raise NoServer(
                "no server is known: start one with `forebay up`, sign in with `forebay login URL`, "
                "or set FOREBAY_URL and FOREBAY_TOKEN"
            )
        return Server(known[0].url, token or known[0].token)
    if token is None:
        token = next((server.token for server in known if server.url == url), None)
    if token is None:
        raise NoToken(f"there is no token for {url}: set FOREBAY_TOKEN or run `forebay login {url}`")
    return Server(url, token)


def checked_url(url: str | None) -> str | None:
    """Return a server's address without its last slash; raise BadAddress for what is none."""
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise BadAddress(f"'{url}' is not the address of a server: it must begin with http:// or https://")
    return url.rstrip("/")


def remember(server: Server) -> Path:
    """Make a server the one that commands talk to; returns the file, which only its owner reads."""
    path = _file()
    rows = [server, *(known for known in remembered() if known.url != server.url)]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"servers": [{"url": row.url, "token": row.token} for row in rows]}, file)
    os.replace(draft, path)
    return path


def remembered() -> list[Server]:
    """Return the servers of earlier logins, the last one first."""
    try:
        rows: Any = json.loads(_file().read_text())["servers"]
        return [Server(str(row["url"]), str(row["token"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "forebay" / "servers.json"


def _local() -> list[Server]:
    from forebay.supervisor.directory import find_data_directory
    from forebay.supervisor.runtime import running

    data = find_data_directory()
    try:
        runtime, token = running(data.runtime), data.token.read_text().strip()
    except OSError:
        return []
    return [Server(runtime.url.rstrip("/"), token)] if runtime and token else []
