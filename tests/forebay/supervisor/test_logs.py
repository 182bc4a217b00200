"""The joined log."""

from pathlib import Path

import pytest

from forebay.supervisor import logs
from forebay.supervisor.logs import JoinedLog


def test_whole_lines_of_all_parts_are_joined_with_their_names(tmp_path: Path) -> None:
    said: list[str] = []
    log = JoinedLog(tmp_path, said.append, everything=True)
    web, beat = log.file_of("web"), log.file_of("beat")
    with web.open("a") as file:
        file.write("one\ntw")
    with beat.open("a") as file:
        file.write("tick\n")
    log.follow()
    with web.open("a") as file:
        file.write("o\n")
    log.say("ready")
    log.close()
    expected = ["web         | one", "beat        | tick", "forebay     | ready", "web         | two"]
    assert (tmp_path / "forebay.log").read_text().splitlines() == expected
    assert said == expected


def test_a_person_hears_only_the_supervisor_unless_they_ask(tmp_path: Path) -> None:
    said: list[str] = []
    log = JoinedLog(tmp_path, said.append)
    log.file_of("web").write_text("chatter\n")
    log.say("ready")
    log.close()
    assert said == ["ready"]


def test_lines_of_an_earlier_start_are_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "web.log").write_text("old\n")
    log = JoinedLog(tmp_path, lambda _: None)
    log.file_of("web")
    log.close()
    assert (tmp_path / "forebay.log").read_text() == ""


def test_a_grown_log_is_cut_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LARGEST_LOG_BYTES", 100)
    said: list[str] = []
    log = JoinedLog(tmp_path, said.append, everything=True)
    with log.file_of("web").open("ab", buffering=0) as writer:  # as a part holds its file
        for number in range(30):
            writer.write(f"line {number}\n".encode())
            log.follow()
    log.close()
    assert said == [f"web         | line {number}" for number in range(30)]
    assert (tmp_path / "web.log").stat().st_size <= 100
    assert (tmp_path / "web.log.1").stat().st_size > 100
    assert (tmp_path / "forebay.log").stat().st_size <= 130
