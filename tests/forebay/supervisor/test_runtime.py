"""`runtime.json`."""

import stat
from pathlib import Path

import pytest

from forebay.supervisor.process import Identity
from forebay.supervisor.runtime import READY, Runtime, own_identity, read_runtime, running


def runtime(supervisor: Identity) -> Runtime:
    parts = {"web": own_identity(), "beat": Identity(2**22 - 1, 1)}
    return Runtime(supervisor, READY, "http://127.0.0.1:1", 1, "/data", parts=parts, restarts={"web": 2})


def test_what_is_written_is_read_back_and_private(tmp_path: Path) -> None:
    path = tmp_path / "runtime.json"
    runtime(own_identity()).write(path)
    assert read_runtime(path) == runtime(own_identity())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["runtime.json"]


def test_the_file_of_a_dead_supervisor_is_not_a_running_platform(tmp_path: Path) -> None:
    path = tmp_path / "runtime.json"
    runtime(Identity(own_identity().pid, 1)).write(path)
    assert running(path) is None
    left = read_runtime(path)
    assert left is not None
    assert left.leftovers() == {"web": own_identity()}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"parts": []}', '{"parts": {}, "supervisor": 1}', "\x00\xff"]
)
def test_a_damaged_file_is_no_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "runtime.json"
    path.write_text(text, encoding="latin-1")
    assert read_runtime(path) is None


def test_people_are_sent_to_the_public_address_where_there_is_one() -> None:
    here = runtime(own_identity())
    assert here.site == "http://127.0.0.1:1"
    here.public_url = "https://forebay.example.org"
    assert here.site == "https://forebay.example.org"
