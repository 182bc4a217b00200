"""What the doctor says about a machine."""

import resource
import time
from pathlib import Path

import pytest

from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.doctor import machine
from forebay.supervisor.doctor.finding import Level
from workers.trainer.compiling import compilers

OK, WARNING, BLOCKS = Level.OK, Level.WARNING, Level.BLOCKS


@pytest.mark.parametrize(
    ("version", "level"), [((3, 10), BLOCKS), ((3, 11), OK), ((3, 12), WARNING), ((2, 7), BLOCKS)]
)
def test_python(version: tuple[int, int], level: Level) -> None:
    assert machine.python_version(version).level == level


@pytest.mark.parametrize(
    ("system", "processor", "level"),
    [
        ("Linux", "x86_64", OK),
        ("Linux", "aarch64", OK),
        ("Darwin", "arm64", OK),
        ("Linux", "riscv64", BLOCKS),
        ("Windows", "AMD64", BLOCKS),
    ],
)
def test_operating_system(system: str, processor: str, level: Level) -> None:
    assert machine.operating_system(system, processor).level == level


@pytest.mark.parametrize(("gib", "level"), [(0.5, BLOCKS), (1.0, WARNING), (3.9, WARNING), (4.0, OK)])
def test_memory(gib: float, level: Level) -> None:
    found = machine.memory(int(gib * machine.GIB))
    assert found.level == level
    assert bool(found.advice) == (level != OK)


def test_free_memory_of_this_machine_is_plausible() -> None:
    total = machine.os.sysconf("SC_PAGE_SIZE") * machine.os.sysconf("SC_PHYS_PAGES")
    assert 0 < machine.memory_bytes() <= total


@pytest.mark.parametrize(
    ("limit", "level"), [(128, BLOCKS), (1024, WARNING), (8192, OK), (resource.RLIM_INFINITY, OK)]
)
def test_open_files(limit: int, level: Level) -> None:
    assert machine.open_files(limit).level == level


@pytest.mark.parametrize(("behind_s", "level"), [(0.0, OK), (30.0, OK), (3600.0, WARNING)])
def test_a_clock_that_went_back_is_noticed_by_the_data(behind_s: float, level: Level) -> None:
    now = time.time()
    assert machine.clock(now, now + behind_s).level == level


def test_a_clock_before_the_release_is_wrong() -> None:
    assert machine.clock(0.0, 0.0).level == BLOCKS


def test_a_missing_shared_memory_mount_is_no_fault(tmp_path: Path) -> None:
    assert machine.shared_memory(tmp_path / "absent").level == OK


def test_the_disk_of_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    found = machine.disk(DataDirectory(tmp_path / "a" / "b"))
    assert str(tmp_path) in found.detail


def test_a_machine_without_a_compiler_is_fit_and_told_what_stays_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    compilers.why_off.cache_clear()
    found = machine.compiling("cpu")
    compilers.why_off.cache_clear()
    assert (found.level, found.detail) == (
        OK,
        "off, no C++ compiler (g++ or clang++) found; targets train eagerly",
    )
