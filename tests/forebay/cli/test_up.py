"""`forebay up` and `forebay down` where nothing needs to start."""

import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from forebay.cli.main import cli

BY_HAND = {"DATABASE_URL": "", "BROKER_URL": "", "RAY_ADDRESS": "", "RAY_AUTH_TOKEN": ""}


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), env=BY_HAND | variables)


@pytest.mark.parametrize(
    ("arguments", "variables", "rule"),
    [
        (["--port", "0"], {}, "0 is not in the range 1<=x<=65535"),
        (["--port", "http"], {}, "'http' is not a valid integer range"),
        (
            ["--public-url", "forebay.example.org"],
            {},
            "--public-url is 'forebay.example.org': it must be an address",
        ),
        (["--public-url", "ftp://x"], {}, "--public-url is 'ftp://x'"),
        (["--reset"], {}, "without a terminal add --yes"),
        ([], {"RAY_ADDRESS": "ray://head:10001"}, "without one can run any code on it"),
        ([], {"DATABASE_URL": "mysql://x"}, "DATABASE_URL must begin with postgresql://"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], rule: str
) -> None:
    refused = run("up", "--data-dir", str(tmp_path / "data"), *arguments, **variables)
    assert refused.exit_code == 2
    assert rule in refused.stderr
    assert refused.stdout == ""
    assert not (tmp_path / "data" / "postgres").exists()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = run("up", "--data-dir", str(tmp_path), "--port", str(port))
    assert refused.exit_code == 2
    assert f"--port {port} cannot be used: Address already in use" in refused.stderr


def test_a_file_in_the_place_of_the_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    refused = run("up", "--data-dir", str(tmp_path / "data"))
    assert refused.exit_code == 1
    assert "cannot create the data directory" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_down_where_nothing_runs_says_so(tmp_path: Path) -> None:
    assert run("down", "--data-dir", str(tmp_path)).stderr == f"nothing runs in {tmp_path}\n"
    answer = run("down", "--data-dir", str(tmp_path), "--json")
    assert json.loads(answer.stdout) == {"outcome": f"nothing runs in {tmp_path}", "data_dir": str(tmp_path)}
    assert answer.exit_code == 0


def test_the_variable_names_the_data_directory(tmp_path: Path) -> None:
    assert run("down", FOREBAY_DATA=str(tmp_path)).stderr == f"nothing runs in {tmp_path}\n"
    assert os.listdir(tmp_path) == []
