"""The data directory: which one it is, who holds it, what a reset deletes."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.supervisor import directory as module
from forebay.supervisor.directory import CONTENTS, DataDirectory, find_data_directory
from forebay.supervisor.errors import SupervisorError


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FOREBAY_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(module, "CLONE", tmp_path / "clone")
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "manage.py").touch()
    return tmp_path / "clone"


def test_the_option_wins_over_the_variable_over_the_clone_over_the_home(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_data_directory().path == clone.parent / "home" / ".local" / "share" / "forebay"
    (clone / ".forebay").mkdir()
    assert find_data_directory().path == clone / ".forebay"
    monkeypatch.setenv("FOREBAY_DATA", "/from/variable")
    assert find_data_directory().path == Path("/from/variable")
    assert find_data_directory("/from/option").path == Path("/from/option")


def test_a_relative_path_and_a_tilde_are_made_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert DataDirectory(Path("data")).path == tmp_path / "data"
    assert DataDirectory(Path("~/data")).path == Path("/home/somebody/data")


def test_everything_in_it_is_private(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    data.create()
    # Root's PostgreSQL runs under another account, which may pass but not look.
    assert stat.S_IMODE(data.path.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)
    assert {stat.S_IMODE(path.stat().st_mode) for path in data.path.iterdir()} == {0o700}


def test_the_modes_of_a_directory_that_was_there_stay(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    DataDirectory(tmp_path).create()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750


def test_a_file_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SupervisorError, match="cannot create the data directory .*file"):
        DataDirectory(tmp_path / "file").create()


def test_a_second_holder_is_refused_and_the_lock_of_a_killed_one_is_free(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from forebay.supervisor.directory import DataDirectory\n"
        "with DataDirectory(Path(sys.argv[1])).locked() as ours:\n"
        "    print(ours, flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    with data.locked() as ours:
        assert ours is False
    holder.kill()
    holder.wait()
    with data.locked() as ours:
        assert ours is True


def test_a_reset_deletes_what_is_ours_and_nothing_else(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    data.create()
    for name in CONTENTS:
        if not (tmp_path / name).exists():
            (tmp_path / name).touch()
    (tmp_path / "thesis.tex").touch()
    data.postgres.mkdir()
    (data.artifacts / "model").touch()
    with data.locked():
        data.delete_contents()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["forebay.lock", "thesis.tex"]
