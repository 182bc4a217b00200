"""The body of a job as a person writes it: the fields every kind shares."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.core.errors import InvalidSpec

FIELDS = ("kind", "name", "team", "spec", "objective")
NAME_LENGTH = 200
Faults = list[tuple[str, str]]


@dataclass(frozen=True)
class JobBody:
    """A well-formed body; the spec is still to be checked by its kind."""

    kind: str
    name: str
    team: str | None
    spec: dict[str, Any]
    objective: dict[str, float] | None


def parse_body(data: Any) -> JobBody:
    """Return the body, or raise InvalidSpec that names every faulty field."""
    if not isinstance(data, Mapping):
        raise InvalidSpec([("", "a job is an object with the fields " + ", ".join(FIELDS))])
    faults: Faults = [
        (f"/{escape(str(key))}", f"unknown field; a job has {', '.join(FIELDS)}")
        for key in data
        if key not in FIELDS
    ]
    kind, name = _text(data, "kind", faults), _text(data, "name", faults)
    if "kind" not in data:
        faults.append(("/kind", "this field is required"))
    team = _text(data, "team", faults)
    spec = data.get("spec", {})
    if not isinstance(spec, Mapping):
        faults.append(("/spec", "must be an object"))
    objective = _objective(data.get("objective"), faults)
    if faults:
        raise InvalidSpec(faults)
    return JobBody(kind or "", name or "", team, dict(spec), objective)


def escape(key: str) -> str:
    """Escape a key for a JSON Pointer (RFC 6901, section 3)."""
    return key.replace("~", "~0").replace("/", "~1")


def _text(data: Mapping[str, Any], key: str, faults: Faults) -> str | None:
    value = data.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        faults.append((f"/{key}", "must be a text that is not empty"))
        return None
    if len(value) > NAME_LENGTH:
        faults.append((f"/{key}", f"has {len(value)} characters, {NAME_LENGTH} are allowed"))
    if any(ord(character) < 32 for character in value):
        faults.append((f"/{key}", "contains control characters"))
    return value.strip()


def _objective(value: Any, faults: Faults) -> dict[str, float] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or len(value) != 1 or not set(value) <= {"at_least", "at_most"}:
        faults.append(("/objective", "must hold exactly one of at_least, at_most"))
        return None
    ((key, bound),) = value.items()
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
        faults.append((f"/objective/{key}", "must be a finite number"))
        return None
    return {key: float(bound)}
