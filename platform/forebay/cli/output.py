"""Strict JSON on standard output, words for people on standard error."""

import json
import math
from typing import Any

import click


def strict(value: Any, path: str = "") -> tuple[Any, list[str]]:
    """Return the value with non-finite numbers as None, and the paths where they stood."""
    if isinstance(value, float) and not math.isfinite(value):
        return None, [path or "/"]
    if isinstance(value, dict):
        items = {str(key): strict(item, f"{path}/{key}") for key, item in value.items()}
        lost = [lost_path for _, found in items.values() for lost_path in found]
        return {key: item for key, (item, _) in items.items()}, lost
    if isinstance(value, list | tuple):
        rows = [strict(item, f"{path}/{index}") for index, item in enumerate(value)]
        return [item for item, _ in rows], [p for _, found in rows for p in found]
    return value, []


def emit_json(document: dict[str, Any]) -> None:
    """Print exactly one JSON document; name every non-finite number in `warnings`."""
    clean, lost = strict(document)
    if lost:
        clean["warnings"] = [*clean.get("warnings", []), *(f"{path} is not a finite number" for path in lost)]
    click.echo(json.dumps(clean, allow_nan=False))


def say(message: str) -> None:
    """Tell a person something without touching standard output."""
    click.echo(message, err=True)
