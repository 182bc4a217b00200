"""What compiling cost on this machine lately, kept from study to study in the user's cache folder."""

import json
import os
import tempfile
from pathlib import Path

from workers.trainer.workloads.package_data import cache_folder

KEPT = 5


def _file() -> Path:
    return cache_folder() / "compile-seconds.json"


def kernels_folder() -> Path:
    """Return where compiled kernels are kept, so that the same graph compiles in a second next time."""
    return cache_folder() / "inductor"


def remembered_s(device: str, torch_version: str) -> float | None:
    """Return the longest of the last compilations on a kind of device; None where there were none."""
    seconds = _read().get(_key(device, torch_version), [])
    return max(seconds) if seconds else None


def remember_s(device: str, torch_version: str, seconds: float) -> None:
    """Keep what a compilation took. A file that cannot be written costs only the memory."""
    known = _read()
    key = _key(device, torch_version)
    known[key] = [*known.get(key, []), seconds][-KEPT:]
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=_file().parent, suffix=".tmp", delete=False) as file:
            json.dump(known, file)
        os.replace(file.name, _file())
    except OSError:
        return


def _key(device: str, torch_version: str) -> str:
    return f"{device}, torch {torch_version}"


def _read() -> dict[str, list[float]]:
    try:
        found = json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    lists = {str(key): value for key, value in found.items() if isinstance(value, list)}
    return {key: [float(one) for one in value] for key, value in lists.items()}
