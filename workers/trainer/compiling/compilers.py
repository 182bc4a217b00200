"""Whether this machine can compile at all: looked up once, without importing torch."""

import os
import shutil
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path


def cpp_compiler() -> str | None:
    """Return the C++ compiler that torch.compile shall use: what CXX names, else g++ or clang++, or None."""
    return _first((os.environ.get("CXX"), "g++", "clang++"))


def c_compiler() -> str | None:
    """Return the C compiler with which Triton builds its launchers: what CC names, else gcc or clang."""
    return _first((os.environ.get("CC"), "gcc", "clang"))


def _first(names: tuple[str | None, ...]) -> str | None:
    return next((path for name in names if name and (path := shutil.which(name))), None)


@cache
def why_off(device_kind: str) -> str | None:
    """Return why nothing is compiled on a kind of device (`cpu`, `cuda`), or None where it is possible."""
    missing = _missing_for_cpu() if device_kind == "cpu" else _missing_for_gpu(device_kind)
    if missing is None and not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        missing = "no Python.h (the package python3-dev) found"
    return missing


def _missing_for_cpu() -> str | None:
    return None if cpp_compiler() else "no C++ compiler (g++ or clang++) found"


def _missing_for_gpu(device_kind: str) -> str | None:
    if device_kind != "cuda":
        return f"no compiler for {device_kind} devices"
    if find_spec("triton") is None:
        return "no triton installed"
    return None if c_compiler() else "no C compiler (gcc or clang) found, which triton needs"
