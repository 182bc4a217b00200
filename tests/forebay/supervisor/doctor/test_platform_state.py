"""What the doctor says about a platform that runs, or ran."""

import socket
from pathlib import Path

import pytest

from forebay.supervisor.addresses import USUAL_PORT
from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.doctor import platform_state
from forebay.supervisor.doctor.finding import Level
from forebay.supervisor.process import Identity
from forebay.supervisor.runtime import READY, Runtime, own_identity

DATA = DataDirectory(Path("/data"))


def runtime(supervisor: Identity) -> Runtime:
    parts = {"web": own_identity()}
    return Runtime(supervisor, READY, "http://127.0.0.1:1", 1, "/data", parts=parts, restarts={"web": 3})


def test_a_live_platform_tells_where_it_is() -> None:
    found = platform_state.running(DATA, runtime(own_identity()))
    assert (found.level, found.detail) == (Level.OK, "ready at http://127.0.0.1:1, 3 restarts of its parts")


def test_what_a_killed_supervisor_left_is_listed() -> None:
    found = platform_state.running(DATA, runtime(Identity(own_identity().pid, 1)))
    assert found.level == Level.WARNING
    assert found.detail.endswith("was killed; still running of it: web")
    assert "forebay down" in found.advice


def test_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert platform_state.port_is_free(port).level == Level.BLOCKS
        monkeypatch.setattr(platform_state, "USUAL_PORT", port)
        assert platform_state.port_is_free(None).level == Level.OK
    assert platform_state.port_is_free(port).level == Level.OK
    assert USUAL_PORT > 1024


def test_data_that_no_link_leads_to_is_found(tmp_path: Path) -> None:
    kept, lost = tmp_path / "postgres-kept", tmp_path / "postgres-lost"
    for cluster in (kept, lost):
        cluster.mkdir()
        (cluster / "linked-from").write_text(str(tmp_path / f"link-{cluster.name}"))
    assert platform_state.unreferenced(tmp_path).level == Level.WARNING
    (tmp_path / "link-postgres-kept").symlink_to(kept)
    found = platform_state.unreferenced(tmp_path)
    assert str(lost) in found.detail
    assert str(kept) not in found.detail
    lost.rename(tmp_path / "elsewhere")
    assert platform_state.unreferenced(tmp_path).level == Level.OK


def test_a_directory_that_cannot_be_written_blocks(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert platform_state.data_directory(DataDirectory(tmp_path / "file" / "data")).level == Level.BLOCKS
    assert platform_state.data_directory(DataDirectory(tmp_path / "new")).detail.endswith("not there yet")
