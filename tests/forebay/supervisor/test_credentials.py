"""Generated secrets."""

import stat
from pathlib import Path

from forebay.supervisor.credentials import ensure_secret, store_secret


def test_a_secret_is_generated_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    first = ensure_secret(path)
    assert len(first) >= 50
    assert ensure_secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ensure_secret(tmp_path / "other") != first


def test_loosened_permissions_are_tightened(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    first = ensure_secret(path)
    path.chmod(0o644)
    assert ensure_secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_empty_file_is_filled(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    assert len(ensure_secret(tmp_path / "secret")) >= 50


def test_a_given_secret_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    store_secret(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
