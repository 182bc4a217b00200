"""Socket directories: private and short."""

import os
import stat
from pathlib import Path

import pytest

from forebay.supervisor.account import caller
from forebay.supervisor.errors import SupervisorError
from forebay.supervisor.sockets import LONGEST_SOCKET_PATH_BYTES, fits, socket_directory


def test_bytes_count_not_characters() -> None:
    assert fits(Path("/" + "x" * (LONGEST_SOCKET_PATH_BYTES - 1)))
    assert not fits(Path("/" + "x" * LONGEST_SOCKET_PATH_BYTES))
    assert not fits(Path("/" + "é" * 60))


def test_a_short_path_is_used_as_it_is(short_dir: Path) -> None:
    assert socket_directory(short_dir / "run", "s", caller()) == short_dir / "run"


def test_a_long_path_always_leads_to_the_same_short_one(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    preferred = short_dir / ("x" * 100)
    chosen = socket_directory(preferred, "s", caller())
    assert chosen.parent == short_dir
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700
    assert socket_directory(preferred, "s", caller()) == chosen
    assert socket_directory(short_dir / ("y" * 100), "s", caller()) != chosen


def test_a_link_laid_out_by_somebody_is_not_followed(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    preferred = short_dir / ("x" * 100)
    chosen = socket_directory(preferred, "s", caller())
    chosen.rmdir()
    chosen.symlink_to("/tmp")
    with pytest.raises(SupervisorError, match="is not ours"):
        socket_directory(preferred, "s", caller())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_directory_of_another_account_is_not_used(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    preferred = short_dir / ("x" * 100)
    os.chown(socket_directory(preferred, "s", caller()), 54321, 54321)
    with pytest.raises(SupervisorError, match="is not ours"):
        socket_directory(preferred, "s", caller())
