"""`forebay overlap --program`: capture a program in a process of its own, then show its plan."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay.cli.errors import BadInput, CommandError, Exit
from forebay.cli.output import emit_json, say

# Parts of the study that a page needs and a terminal does not.
_FOR_PAGES = ("graphs", "trace")


def list_programs(as_json: bool) -> int:
    """Print the built-in programs."""
    from jobs.core.overlap.builtin import BUILT_IN_PROGRAMS

    emit_json({"programs": [{"name": name, "about": about} for name, about in BUILT_IN_PROGRAMS.items()]})
    if not as_json:
        width = max(map(len, BUILT_IN_PROGRAMS))
        for name, about in BUILT_IN_PROGRAMS.items():
            say(f"  {name:<{width}}  {about}")
    return Exit.SUCCESS


def schedule_program(request: Mapping[str, Any], chrome: Path | None, as_json: bool, limit_s: float) -> int:
    """Print the plan of a program."""
    document = _apart(request, limit_s)
    if "refused" in document:
        raise BadInput(document["refused"])
    if "error" in document:
        emit_json(document)
        if not as_json:
            say(f"no plan: {document['error']}")
        return Exit.FAILED
    if chrome is not None:
        write_text(chrome, json.dumps(document["trace"], allow_nan=False))
    emit_json({key: value for key, value in document.items() if key not in _FOR_PAGES})
    if not as_json:
        _summarise(document)
    return Exit.SUCCESS


def _apart(request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
    from workers.trainer.overlap.isolation import StudyFailed, run_apart

    try:
        return run_apart(request, limit_s=limit_s)
    except StudyFailed as error:
        raise CommandError(str(error), Exit.FAILED) from None


def write_text(path: Path, text: str) -> None:
    """Write a trace; a path that cannot be written is bad input."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--chrome: {path}: {error.strerror or error}") from None


def _summarise(document: Mapping[str, Any]) -> None:
    checked = document["verification"]
    makespan, whole = document["makespan"], document["untiled_makespan"]
    gain = f", {whole / makespan:.3g}x the untiled program" if whole and makespan else ""
    name, cluster = document["program"], document["cluster"]
    tiles = f"{document['tiles']} tiles" if document["tiles"] > 1 else "untiled"
    say(f"{name} on {cluster}, simulated: {tiles}, {makespan:.6g} s{gain}")
    if checked:
        bits = "bitwise equal" if checked["reordered_equals_serial"] else "NOT equal"
        say(
            f"  executed on {checked['ranks']} simulated ranks ({checked['size']}): tiles differ by"
            f" {checked['max_rel_error']:.2g}, reordered {bits}"
        )
    for one in document["untiled"][:12]:
        say(f"  {one['node']} is not tiled: {one['reason']}")
    for one in document["decisions"][:12]:
        node = f"{one['node']}: " if one["node"] else ""
        say(f"  {node}{one['action']}: {one['reason']}")
    for warning in document["warnings"]:
        say(f"  warning: {warning}")
