"""Finds programs: built in by name, or `module:function` of one's own, which returns a `forebay.Program`."""

import importlib
from collections.abc import Mapping
from typing import Any

from jobs.core.overlap.builtin import is_reference, size_faults
from jobs.core.overlap.clusters import Placement
from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.program import Program


def load_program(reference: str, placement: Placement, size: Mapping[str, int] | None = None) -> Program:
    """The program behind a name.

    Args:
        size: of a built-in program, where it differs from the program's own; without `ranks` all devices of
            the placement are used.

    Raises:
        ProgramRefused: there is none, its function fails or returns something else, or the size is wrong.
    """
    from workers.trainer.overlap.programs.catalogue import BUILT_IN

    if reference in BUILT_IN:
        nodes = 2 if placement.crosses_nodes else 1
        given = {"ranks": placement.cluster.devices_per_node * nodes, **(size or {})}
        faults = size_faults(given)
        if faults:
            raise ProgramRefused(f"size: {faults[0]}")
        return BUILT_IN[reference].program(**given)
    if size:
        raise ProgramRefused("size: is for built-in programs; a program of your own sets its sizes itself")
    if not is_reference(reference):
        known = ", ".join(BUILT_IN)
        raise ProgramRefused(f"program {reference!r} is neither built in ({known}) nor module:function")
    module_name, _, name = reference.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), name, None)
    except Exception as error:
        raise ProgramRefused(f"program module {module_name!r} cannot be imported: {_said(error)}") from error
    if not callable(function):
        raise ProgramRefused(f"program {reference}: the module has no function {name}")
    try:
        program: Any = function()
    except Exception as error:
        raise ProgramRefused(f"program {reference}: the function failed: {_said(error)}") from error
    if not isinstance(program, Program):
        raise ProgramRefused(
            f"program {reference}: returned a {type(program).__name__}, not a forebay.Program"
        )
    return program


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
