"""Query parameters: read strictly, described for the OpenAPI document from the same table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import QueryDict

from cluster.core.keyset import InvalidQuery

MOST_ROWS = 500
USUAL_ROWS = 50


@dataclass(frozen=True)
class Parameter:
    """A query parameter: what it may be, in words for people and as JSON Schema, and how it is read."""

    name: str
    help: str
    schema: Mapping[str, Any]
    read: Callable[[str], Any]
    default: Any = None
    prefix: bool = False  # stands for every parameter that begins with the name


def text(name: str, help: str, most: int = 200) -> Parameter:
    """A text of some length."""

    def read(value: str) -> str:
        if not 1 <= len(value) <= most or "\0" in value:
            raise ValueError(f"must be a text of 1 to {most} characters")
        return value

    return Parameter(name, help, {"type": "string", "minLength": 1, "maxLength": most}, read)


def whole(name: str, help: str, low: int, high: int, default: int | None = None) -> Parameter:
    """A whole number in a range."""

    def read(value: str) -> int:
        if not (value.isascii() and value.isdigit() and len(value) < 20 and low <= int(value) <= high):
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(value)

    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Parameter(name, help, schema if default is None else schema | {"default": default}, read, default)


def identifier(name: str, help: str) -> Parameter:
    """A UUID."""

    def read(value: str) -> UUID:
        try:
            return UUID(value)
        except ValueError:
            raise ValueError("must be an identifier (UUID)") from None

    return Parameter(name, help, {"type": "string", "format": "uuid"}, read)


def some_of(name: str, help: str, values: Iterable[str]) -> Parameter:
    """One or several of known values, separated by commas."""
    known = [str(value) for value in values]

    def read(value: str) -> list[str]:
        names = value.split(",")
        for one in names:
            if one not in known:
                raise ValueError(f"'{one}' is none of {', '.join(known)}")
        return names

    pattern = f"^({'|'.join(known)})(,({'|'.join(known)}))*$"
    return Parameter(name, help, {"type": "string", "pattern": pattern}, read)


LIMIT = whole("limit", "How many rows one page has at most.", 1, MOST_ROWS, USUAL_ROWS)
CURSOR = text("cursor", "Where the page begins: taken from `next` of the page before.", 2000)


def read_query(given: QueryDict, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return every parameter's value or default; raise InvalidQuery for one unknown, repeated or wrong."""
    exact = {p.name: p for p in parameters if not p.prefix}
    prefixes = [p for p in parameters if p.prefix]
    values: dict[str, Any] = {p.name: p.default for p in exact.values()}
    for name, texts in given.lists():
        parameter = exact.get(name) or next((p for p in prefixes if name.startswith(p.name)), None)
        if parameter is None:
            known = ", ".join(p.name + ("NAME" if p.prefix else "") for p in parameters) or "none"
            raise InvalidQuery(name[:100], f"is no parameter of this address; known are: {known}")
        if len(texts) != 1:
            raise InvalidQuery(name, "is given more than once")
        try:
            values[name] = parameter.read(texts[0])
        except ValueError as error:
            raise InvalidQuery(name, str(error)) from None
    return values
