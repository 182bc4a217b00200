"""`runtime.json`: what runs in a data directory, for the command line and for the next start."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from forebay.supervisor.process import Identity, identify

STARTING, READY, STOPPING = "starting", "ready", "stopping"


@dataclass
class Runtime:
    """A supervisor and its parts; readable by its owner only."""

    supervisor: Identity
    state: str
    url: str
    port: int
    data_dir: str
    database_url: str = ""
    broker_url: str = ""
    public_url: str = ""
    login_url: str = ""
    parts: dict[str, Identity] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Replace the file in one step, 0600."""
        # One name only: a draft that a kill leaves behind is overwritten by the next.
        draft = path.with_name(f".{path.name}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(self), file, indent=1)
        os.replace(draft, path)

    @property
    def site(self) -> str:
        """The address people use."""
        return self.public_url or self.url

    def is_alive(self) -> bool:
        return self.supervisor.is_alive()

    def leftovers(self) -> dict[str, Identity]:
        """Parts that still run."""
        return {name: part for name, part in self.parts.items() if part.is_alive()}


def read_runtime(path: Path) -> Runtime | None:
    """The last written state, whether its supervisor lives or not; None where there is none."""
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        parts = {name: Identity(**part) for name, part in document.pop("parts").items()}
        return Runtime(supervisor=Identity(**document.pop("supervisor")), parts=parts, **document)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def running(path: Path) -> Runtime | None:
    """The state of a live supervisor, or None."""
    runtime = read_runtime(path)
    return runtime if runtime and runtime.is_alive() else None


def own_identity() -> Identity:
    """The identity of this process."""
    identity = identify(os.getpid())
    assert identity is not None
    return identity


def forget(path: Path) -> None:
    """Remove the file after an orderly stop."""
    with contextlib.suppress(OSError):
        path.unlink()
