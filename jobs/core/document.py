"""The text of a job file as plain data: JSON or YAML (1.2 core schema), read without surprises.

Refused are repeated keys, aliases (a small text can unfold to gigabytes), nesting deeper than a job can
have, numbers that are not finite or too large, and characters the database cannot hold.
"""

import json
import math
import re
from typing import Any

import yaml

from jobs.core.body import escape
from jobs.core.errors import InvalidSpec

DEEPEST = 64
LARGEST_INTEGER = 2**63 - 1

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_json(text: str) -> Any:
    """Return the data of a JSON text; raise InvalidSpec where it is not strict JSON."""
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise refused(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise refused(f"is nested deeper than {DEEPEST} levels") from None
    except ValueError as error:  # also a whole number of thousands of digits
        raise refused(f"is not JSON: {error}") from None
    return checked(data)


def parse_yaml(text: str) -> Any:
    """Return the data of a YAML text; raise InvalidSpec where it is not a plain document."""
    try:
        _check_events(text)
        data = yaml.load(text, Loader=PlainLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise refused(f"is not YAML: {error.problem or error}{where}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise refused(f"is not YAML: {str(error) or 'nested too deep'}".split("\n")[0]) from None
    return checked(data)


def parse_text(text: str, name: str = "") -> Any:
    """Return the data of a job file; a name that ends in .json means JSON, anything else YAML."""
    return parse_json(text) if name.lower().endswith(".json") else parse_yaml(text)


def refused(sentence: str) -> InvalidSpec:
    """Return the error for a text that has no data."""
    return InvalidSpec([("", f"the body {sentence}")])


def checked(data: Any) -> Any:
    """Return plain data as it is; raise InvalidSpec at each value that JSON or the database cannot hold."""
    faults: list[tuple[str, str]] = []
    waiting: list[tuple[str, Any, int]] = [("", data, 0)]
    while waiting:
        pointer, value, depth = waiting.pop()
        if depth > DEEPEST:
            raise InvalidSpec([(pointer, f"is nested deeper than {DEEPEST} levels")])
        if isinstance(value, dict):
            for key, item in value.items():
                if not isinstance(key, str) or _text_fault(key):
                    faults.append((pointer, f"has the key {key!r}: keys are plain texts"))
                else:
                    waiting.append((f"{pointer}/{escape(key)}", item, depth + 1))
        elif isinstance(value, list):
            waiting += [(f"{pointer}/{index}", item, depth + 1) for index, item in enumerate(value)]
        elif fault := _fault(value):
            faults.append((pointer, fault))
    if faults:
        raise InvalidSpec(faults[:100])
    return data


def _fault(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _text_fault(value)
    if isinstance(value, int):
        return None if abs(value) <= LARGEST_INTEGER else "is a whole number of more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else "is not a finite number"
    kind = type(value).__name__
    return f"is of the type {kind}: only objects, lists, texts, numbers, true, false and null are known"


def _text_fault(text: str) -> str | None:
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        return "contains a character that no text can hold"
    return None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} stands twice in one object")
        result[key] = value
    return result


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _check_events(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise ValueError(f"aliases are not allowed (line {line})")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST} levels")


class PlainLoader(Loader):
    """YAML 1.2 core schema: `no` is a text and 1e-3 a number; a repeated key is an error."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key in result:
                rule = "a key must be a text" if key is None else f"the key {key!r} stands twice"
                raise yaml.constructor.ConstructorError(None, None, rule, key_node.start_mark)
            result[key] = self.construct_object(value_node, deep=deep)
        return result


def _whole(loader: Any, node: Any) -> int:
    text = node.value.lstrip("+")
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text, 10 if base == 10 else 0)


# (tag, pattern, characters a value of it can begin with; null can also be nothing at all)
CORE_SCHEMA: list[tuple[str, str, list[str]]] = [
    ("null", r"~|null|Null|NULL|", ["", *"~nN"]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", [*"-+0123456789"]),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        [*"-+.0123456789"],
    ),
]
for tag, pattern, first in CORE_SCHEMA:
    PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first)
PlainLoader.add_constructor("tag:yaml.org,2002:int", _whole)
