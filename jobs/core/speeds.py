"""What a job may say about itself that some policies weigh: its speed by kind, by width and in company, and
inside which part of the network its devices should lie.
"""

import math
from collections.abc import Mapping
from typing import Any

MOST_KINDS = 20
MOST_WIDTHS = 1024
FASTEST = 1e6
MODES = ("required", "preferred")
Faults = list[tuple[str, str]]

_SPEED = {"type": "number", "exclusiveMinimum": 0, "maximum": FASTEST}
SPEED_FIELDS: dict[str, dict[str, Any]] = {
    "speeds": {
        "type": "object",
        "additionalProperties": _SPEED,
        "minProperties": 1,
        "maxProperties": MOST_KINDS,
        "description": "Kind of device to speed there, relative to one another; the default is 1. For Gavel.",
    },
    "speedup": {
        "type": "array",
        "items": _SPEED,
        "minItems": 1,
        "maxItems": MOST_WIDTHS,
        "description": "Speed of an elastic job on 1, 2, ... devices, relative to one another. For Pollux.",
    },
    "keeps": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 1,
        "description": "Share of its speed that it keeps beside another job on its devices; the default is "
        "to share none. For Lucid.",
    },
}
PLACE_FIELDS: dict[str, dict[str, Any]] = {
    "topology": {
        "type": "object",
        "properties": {
            "level": {"type": "string", "minLength": 1, "maxLength": 100},
            "mode": {"enum": list(MODES), "default": MODES[0]},
        },
        "required": ["level"],
        "additionalProperties": False,
        "description": "Level of the topology, such as rack, inside one domain of which its devices must or "
        "should lie.",
    },
}


def _is_speed(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 < value <= FASTEST


def read_speeds(value: Any, faults: Faults, pointer: str) -> tuple[tuple[str, float], ...]:
    """Return (kind, speed) pairs; note a fault where it makes no sense."""
    if value is None:
        return ()
    good = isinstance(value, Mapping) and 1 <= len(value) <= MOST_KINDS
    good = good and all(isinstance(kind, str) and 1 <= len(kind) <= 100 for kind in value)
    if not good or not all(map(_is_speed, value.values())):
        faults.append((f"{pointer}/speeds", "must be an object: kind of device -> a number above 0"))
        return ()
    return tuple(sorted((kind, float(speed)) for kind, speed in value.items()))


def read_speedup(value: Any, faults: Faults, pointer: str) -> tuple[float, ...]:
    """Return the speeds on 1, 2, ... devices as multiples of the first."""
    if value is None:
        return ()
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_WIDTHS or not all(map(_is_speed, value)):
        faults.append((f"{pointer}/speedup", "must be a list of numbers above 0: speed on 1, 2, ... devices"))
        return ()
    return tuple(float(speed) / float(value[0]) for speed in value)


def read_keeps(value: Any, faults: Faults, pointer: str) -> float:
    """Return the share of its speed that a job keeps in company, 0 where it wants none."""
    if value is None:
        return 0.0
    if not _is_speed(value) or value > 1:
        faults.append((f"{pointer}/keeps", "must be a number above 0 to 1"))
        return 0.0
    return float(value)


def read_topology(value: Any, faults: Faults, pointer: str) -> tuple[str, str] | None:
    """Return (mode, level)."""
    if value is None:
        return None
    known = isinstance(value, Mapping) and set(value) <= {"level", "mode"}
    level = value.get("level") if known else None
    if not isinstance(level, str) or not 1 <= len(level) <= 100 or value.get("mode", MODES[0]) not in MODES:
        rule = 'must be an object: level (such as "rack") and mode (required or preferred)'
        faults.append((f"{pointer}/topology", rule))
        return None
    return str(value.get("mode", MODES[0])), level
