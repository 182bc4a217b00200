"""`forebay doctor` as a whole."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

BY_HAND = {"DATABASE_URL": "", "BROKER_URL": "", "RAY_ADDRESS": "", "RAY_AUTH_TOKEN": ""}


def doctor(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "forebay.cli.main", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | BY_HAND, check=False)


def test_this_machine_is_fit_and_every_line_says_what_it_looked_at(tmp_path: Path) -> None:
    examined = doctor("--data-dir", str(tmp_path))
    assert examined.returncode == 0, examined.stdout
    lines = examined.stdout.splitlines()
    assert lines[-1] == "Forebay can run here."
    assert all(line.startswith(("ok   ", "WARN ", "STOP ")) for line in lines[:-1])
    assert all(" -> " in line for line in lines if line.startswith("WARN "))


def test_something_that_blocks_is_returncode_1_and_says_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        examined = doctor("--json", "--data-dir", str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert examined.returncode == 1
    answer = json.loads(examined.stdout)
    assert answer["ok"] is False
    (fault,) = [check for check in answer["checks"] if check["level"] == "blocks"]
    assert (fault["name"], fault["advice"]) == ("port", "choose another with --port")
    assert set(fault) == {"name", "level", "detail", "advice"}
