"""What another account may reach."""

import os
import stat
from pathlib import Path

import pytest

from forebay.supervisor import account as module
from forebay.supervisor.account import Account, caller, service_account
from forebay.supervisor.errors import SupervisorError

STRANGER = Account("stranger", 54321, 54321)
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.mark.parametrize(
    ("above", "itself", "usable"),
    [
        (0o755, 0o644, True),
        (0o711, 0o644, True),
        (0o700, 0o644, False),
        (0o750, 0o644, False),
        (0o755, 0o640, False),
        (0o755, 0o600, False),
    ],
)
def test_a_stranger_needs_every_directory_and_the_file(
    short_dir: Path, above: int, itself: int, usable: bool
) -> None:
    file = short_dir / "file"
    file.touch()
    file.chmod(itself)
    short_dir.chmod(above)
    assert STRANGER.can_use(file) is usable


@AS_ROOT
def test_the_owner_and_the_group_are_judged_by_their_own_bits(short_dir: Path) -> None:
    os.chown(short_dir, STRANGER.uid, STRANGER.gid)
    short_dir.chmod(0o077)
    assert not STRANGER.can_pass(short_dir)
    short_dir.chmod(0o700)
    assert STRANGER.can_pass(short_dir)
    os.chown(short_dir, 0, STRANGER.gid)
    short_dir.chmod(0o710)
    assert STRANGER.can_pass(short_dir)


def test_a_directory_is_made_private_and_a_loosened_one_tightened(short_dir: Path) -> None:
    path = short_dir / "a"
    path.mkdir(mode=0o777)
    assert stat.S_IMODE(caller().own(path).stat().st_mode) == 0o700


def test_a_link_in_the_place_of_a_directory_is_not_followed(short_dir: Path) -> None:
    (short_dir / "target").mkdir()
    (short_dir / "target").chmod(0o755)
    (short_dir / "link").symlink_to(short_dir / "target")
    with pytest.raises(SupervisorError, match="must be a directory"):
        caller().own(short_dir / "link")
    assert stat.S_IMODE((short_dir / "target").stat().st_mode) == 0o755


def test_a_link_in_the_place_of_a_file_is_replaced(short_dir: Path) -> None:
    (short_dir / "target").write_text("precious")
    (short_dir / "file").symlink_to(short_dir / "target")
    caller().write(short_dir / "file", "new")
    assert (short_dir / "target").read_text() == "precious"
    assert (short_dir / "file").read_text() == "new"
    assert stat.S_IMODE((short_dir / "file").stat().st_mode) == 0o600


@AS_ROOT
def test_an_existing_account_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_SERVICE_USER", "nobody")
    assert service_account().name == "nobody"
    monkeypatch.setenv("FOREBAY_SERVICE_USER", "root")
    with pytest.raises(SupervisorError, match="must not be root"):
        service_account()


@AS_ROOT
def test_without_useradd_root_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FOREBAY_SERVICE_USER", "forebay-absent")
    monkeypatch.setattr(module.shutil, "which", lambda *_, **__: None)
    with pytest.raises(SupervisorError, match="run as an ordinary user, name an existing account"):
        service_account()


def test_the_home_for_what_others_must_reach_is_passable_under_any_umask(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = short_dir / "forebay"
    monkeypatch.setattr(module, "ROOT_HOME", home)
    before = os.umask(0o077)
    try:
        assert stat.S_IMODE(module.root_home().stat().st_mode) == 0o711
        home.chmod(0o700)  # as an earlier release left it
        assert stat.S_IMODE(module.root_home().stat().st_mode) == 0o711
    finally:
        os.umask(before)
