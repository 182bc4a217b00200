"""What the doctor says about an installation."""

import os
from pathlib import Path

import pytest

from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.doctor import installation
from forebay.supervisor.doctor.finding import Level


def test_a_missing_package_is_named() -> None:
    found = installation.packages(("django", "no-such-package"))
    assert (found.level, found.detail) == (Level.BLOCKS, "missing: no-such-package")


@pytest.mark.parametrize(
    ("uid", "environment", "level"),
    [
        (os.geteuid() or 65534, {}, Level.OK),
        (54321987, {}, Level.BLOCKS),
        (0, {"FOREBAY_SERVICE_USER": "nobody"}, Level.OK),
    ],
)
def test_the_account_of_postgresql(uid: int, environment: dict[str, str], level: Level) -> None:
    assert installation.service_account(uid, environment).level == level


def test_root_without_an_account_and_without_useradd_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation.shutil, "which", lambda *_, **__: None)
    found = installation.service_account(0, {"FOREBAY_SERVICE_USER": "forebay-absent"})
    assert found.level == Level.BLOCKS
    assert "FOREBAY_SERVICE_USER" in found.advice


def test_the_bundled_servers_run_here() -> None:
    assert "PostgreSQL" in installation.postgres_runs().detail
    assert "Valkey server" in installation.valkey_runs().detail


def test_a_server_that_cannot_be_run_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "valkey-server"
    program.write_text("")
    monkeypatch.setattr(installation, "valkey_program", lambda: program)
    found = installation.valkey_runs()
    assert found.level == Level.BLOCKS
    assert "Permission denied" in found.detail
    assert "noexec" in found.advice


def test_a_path_too_long_for_sockets_is_only_a_warning() -> None:
    assert installation.socket_path(DataDirectory(Path("/data"))).level == Level.OK
    assert installation.socket_path(DataDirectory(Path("/" + "x" * 100))).level == Level.WARNING


def test_parts_that_the_operator_brings_are_not_examined(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("DATABASE_URL", "BROKER_URL", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    names = {found.name for found in installation.findings(DataDirectory(tmp_path))}
    assert {"account", "postgresql", "socket path", "valkey"} <= names
    monkeypatch.setenv("DATABASE_URL", "postgresql://user@host/db")
    monkeypatch.setenv("BROKER_URL", "redis://host/0")
    names = {found.name for found in installation.findings(DataDirectory(tmp_path))}
    assert not {"account", "postgresql", "socket path", "valkey"} & names
