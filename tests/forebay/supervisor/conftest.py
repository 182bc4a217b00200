"""Short private directories: Unix sockets have short addresses, and pytest's own paths are long."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory that only its owner can enter."""
    path = Path(tempfile.mkdtemp(prefix="fb-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
