"""The listening socket and the question whether somebody answers."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from forebay.supervisor import addresses
from forebay.supervisor.addresses import answers, listen
from forebay.supervisor.errors import BadSetting


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    monkeypatch.setattr(addresses, "USUAL_PORT", port)
    return port


def test_the_usual_port_then_any_free_one_and_the_same_again(tmp_path: Path, usual: int) -> None:
    with listen(None, tmp_path / "first") as first, listen(None, tmp_path / "second") as second:
        assert first.getsockname() == ("127.0.0.1", usual)
        port = second.getsockname()[1]
        assert port != usual
    with listen(None, tmp_path / "second") as again:
        assert again.getsockname()[1] == port


@pytest.mark.parametrize("remembered", ["", "x", "80", "99999", "-1"])
def test_a_damaged_memory_means_the_usual_port(tmp_path: Path, usual: int, remembered: str) -> None:
    (tmp_path / "port").write_text(remembered)
    with listen(None, tmp_path / "port") as bound:
        assert bound.getsockname()[1] == usual


def test_a_taken_port_that_was_asked_for_is_refused(tmp_path: Path, usual: int) -> None:
    with (
        listen(None, tmp_path / "port"),
        pytest.raises(BadSetting, match=f"--port {usual} cannot be used: Address already in use"),
    ):
        listen(usual, tmp_path / "port")


class Site(BaseHTTPRequestHandler):
    """Answers with the status that the path names."""

    def do_GET(self) -> None:
        status, _, location = self.path.lstrip("/").partition("/")
        self.send_response(int(status))
        if location:
            self.send_header("Location", location)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/200", True),
        ("/503", False),
        ("/404", False),
        ("/301/https://forebay.example.org/", True),
        ("/302/http://127.0.0.1/", False),
    ],
)
def test_only_a_good_answer_counts(path: str, expected: bool) -> None:
    with HTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert answers(server.server_port, path) is expected


def test_nobody_there_and_silence_are_no_answer() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        assert not answers(port, "/")
        silent.listen()
        assert not answers(port, "/", seconds=0.1)
