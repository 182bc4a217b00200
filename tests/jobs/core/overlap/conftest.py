"""Graphs, a slow reference simulator and enumerations that share no code with the product."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"overlap_{name}", Path(__file__).parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_REFERENCE = _load("reference")
_TRACE_PROCESSOR = _load("trace_processor")


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """`reference.py` beside this file."""
    return _REFERENCE


@pytest.fixture(scope="session")
def trace_processor() -> ModuleType:
    """`trace_processor.py` beside this file."""
    return _TRACE_PROCESSOR
