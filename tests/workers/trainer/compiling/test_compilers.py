"""What a machine must have to compile, and what it is told that it lacks."""

from pathlib import Path

import pytest

from workers.trainer.compiling import compilers
from workers.trainer.compiling.remembered import KEPT, remember_s, remembered_s


@pytest.fixture(autouse=True)
def _fresh() -> None:
    compilers.why_off.cache_clear()


def program(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_compiler_is_what_cxx_names_or_the_first_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert compilers.cpp_compiler() is None
    clang = program(tmp_path, "clang++")
    assert compilers.cpp_compiler() == clang
    gcc = program(tmp_path, "g++")
    assert compilers.cpp_compiler() == gcc
    monkeypatch.setenv("CXX", clang)
    assert compilers.cpp_compiler() == clang


def test_nothing_is_compiled_without_a_compiler_or_for_a_device_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    assert compilers.why_off("cpu") == "no C++ compiler (g++ or clang++) found"
    monkeypatch.setattr(compilers, "find_spec", lambda name: None)
    assert compilers.why_off("cuda") == "no triton installed"
    compilers.why_off.cache_clear()
    monkeypatch.setattr(compilers, "find_spec", lambda name: object())
    assert compilers.why_off("cuda") == "no C compiler (gcc or clang) found, which triton needs"
    assert compilers.why_off("mps") == "no compiler for mps devices"


def test_a_machine_remembers_the_longest_of_its_last_compilations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path))
    assert remembered_s("cpu", "2.13.0") is None
    for seconds in (30.0, 9.0, *[10.0 + index for index in range(KEPT - 1)]):
        remember_s("cpu", "2.13.0", seconds)
    assert remembered_s("cpu", "2.13.0") == 13.0
    assert remembered_s("cpu", "2.14.0") is None


@pytest.mark.parametrize("content", ["", "[1]", '{"cpu, torch 2.13.0": 3}', "{"])
def test_a_damaged_memory_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setenv("FOREBAY_CACHE", str(tmp_path))
    (tmp_path / "compile-seconds.json").write_text(content)
    assert remembered_s("cpu", "2.13.0") is None
