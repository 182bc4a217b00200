"""Pages of long lists by keyset: a cursor is the sort key of the last row seen, never an offset."""

import base64
import binascii
import json
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from cluster.core.errors import ClusterError

MOST_CHARACTERS = 2000
LARGEST_INTEGER = 2**63 - 1

Reader = Callable[[Any], Any]


class InvalidQuery(ClusterError):
    """A parameter of a list's address makes no sense; the message names it and the rule."""

    def __init__(self, parameter: str, rule: str) -> None:
        super().__init__(f"{parameter}: {rule}")
        self.parameter = parameter
        self.rule = rule


def encode_cursor(order: str, key: Sequence[Any]) -> str:
    """Return an opaque text for the key of a row within a list of the given order."""
    plain = [value.isoformat() if isinstance(value, datetime) else value for value in key]
    text = json.dumps([order, *plain], separators=(",", ":"), default=str)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def decode_cursor(cursor: str, order: str, readers: Sequence[Reader]) -> list[Any]:
    """Return the key inside a cursor; InvalidQuery if it was not made for a list of this order."""
    try:
        if len(cursor) > MOST_CHARACTERS:
            raise ValueError("too long")
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        order_then, *key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if order_then != order or len(key) != len(readers):
            raise ValueError("another list")
        return [reader(value) for reader, value in zip(readers, key, strict=True)]
    except (ValueError, TypeError, AttributeError, RecursionError, binascii.Error):
        raise InvalidQuery("cursor", "is not a cursor of this list in this order") from None


def read_integer(value: Any) -> int:
    """Read a whole number that fits the database."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST_INTEGER:
        raise ValueError("not a whole number")
    return value


def read_number(value: Any) -> float:
    """Read a number; what is not finite sorts like any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ValueError("too large")
    return float(value)


def read_text(value: Any) -> str:
    """Read a text that the database can hold."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("not a text")
    return value


def read_time(value: Any) -> datetime:
    """Read a moment with its time zone."""
    moment = datetime.fromisoformat(read_text(value))
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    return moment


def read_uuid(value: Any) -> UUID:
    """Read an identifier."""
    return UUID(read_text(value))


def read_json(value: Any) -> Any:
    """Read a plain value of a configuration: a finite number, a text, a truth value, or a list of those."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not finite")
    if isinstance(value, dict) or "\\u0000" in json.dumps(value):
        raise ValueError("not a plain value")
    return value


def nullable(reader: Reader) -> Reader:
    """Make a reader accept nothing."""
    return lambda value: None if value is None else reader(value)
