"""A space as a form: what a person may type into each field, as JSON Schema and as plain rows."""

import math
from typing import Any

from tuning.core.space.distributions import Choice, Distribution, QUniform, RandInt, Uniform
from tuning.core.space.parse import KINDS, LARGEST
from tuning.core.space.space import Space


def distribution_schemas() -> dict[str, Any]:
    """Return a JSON Schema (2020-12) of one entry of a space in a job file."""
    return {"oneOf": [_entry_schema(kind) for kind in KINDS.values()]}


def _entry_schema(kind: type[Distribution]) -> dict[str, Any]:
    number: dict[str, Any] = {"type": "number"}
    if issubclass(kind, RandInt) or kind.kind == "qrandint":
        number = {"type": "integer", "minimum": -LARGEST, "maximum": LARGEST}
    shapes: dict[str, Any] = {
        "low": {**number, "exclusiveMinimum": 0} if kind.log else number,
        "high": number,
        "q": {**number, "exclusiveMinimum": 0},
        "values": {"type": "array", "minItems": 1},
    }
    condition = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "values": {"type": "array", "minItems": 1}},
        "required": ["name", "values"],
        "additionalProperties": False,
    }
    properties = {
        "type": {"const": kind.kind},
        **{field: shapes[field] for field in kind.fields},
        "when": {"type": "array", "items": condition},
    }
    return {
        "title": kind.kind,
        "type": "object",
        "properties": properties,
        "required": ["type", *kind.fields],
        "additionalProperties": False,
    }


def form_fields(space: Space) -> list[dict[str, Any]]:
    """Return one row per parameter: name, kind, bounds or values, points, log axis, conditions."""
    return [
        {
            "name": parameter.name,
            "label": parameter.name.replace("_", " "),
            **parameter.distribution.to_json(),
            "log": parameter.distribution.log,
            "points": _count(parameter.distribution),
            "widget": _widget(parameter.distribution),
            "when": [condition.to_json() for condition in parameter.conditions],
        }
        for parameter in space.parameters
    ]


def _count(distribution: Distribution) -> int | None:
    points = distribution.points()
    return None if points is None else len(points)


def _widget(distribution: Distribution) -> str:
    if isinstance(distribution, Choice):
        return "list"
    if isinstance(distribution, QUniform):
        return "stepped range"
    return "range" if isinstance(distribution, Uniform) else "text"


def size_text(space: Space) -> str:
    """Return the number of configurations for people: `432` or `unlimited`."""
    size = space.size()
    return "unlimited" if math.isinf(size) else f"{int(size):,}"
