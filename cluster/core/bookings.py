"""Reservations as operators ask for them, read strictly."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cluster.core.bodies import Faults, known_fields
from cluster.core.errors import InvalidBody, RequestError
from cluster.core.requests import milli_of

FIELDS = ("name", "kind", "devices", "start", "end", "lendable")


@dataclass(frozen=True)
class BookingBody:
    """Devices of a kind to be kept over a time, in thousandths."""

    name: str
    kind: str
    milli: int
    start: datetime
    end: datetime
    lendable: bool = True


def read_booking(data: Any, now: datetime) -> BookingBody:
    """Read `{"name", "kind", "devices", "start", "end", "lendable"}`; raise InvalidBody with every fault.

    Without `start` it begins now. Times carry their zone.
    """
    faults: Faults = []
    given = known_fields(data, FIELDS, "", faults)
    name, kind = _text(given, "name", faults), _text(given, "kind", faults)
    milli = 0
    try:
        milli = milli_of(given.get("devices"), "devices")
        if not milli:
            faults.append(("/devices", "must be above 0"))
    except RequestError as error:
        faults.append(("/devices", str(error).partition(": ")[2]))
    start = _moment(given, "start", faults, default=now)
    end = _moment(given, "end", faults, default=None)
    if start is not None and end is not None and end <= max(start, now):
        faults.append(("/end", "must be after the start, and in the future"))
    lendable = given.get("lendable", True)
    if not isinstance(lendable, bool):
        faults.append(("/lendable", "must be true or false"))
    if faults or start is None or end is None:
        raise InvalidBody(faults)
    return BookingBody(name, kind, milli, start, end, lendable)


def _text(given: Mapping[str, Any], name: str, faults: Faults) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not 1 <= len(value.strip()) <= 100 or "\0" in value:
        faults.append((f"/{name}", "must be a text of 1 to 100 characters"))
        return ""
    return value.strip()


def _moment(given: Mapping[str, Any], name: str, faults: Faults, default: datetime | None) -> datetime | None:
    value = given.get(name)
    if value is None and default is not None:
        return default
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        faults.append((f"/{name}", "must be a time with its zone, such as 2030-01-31T12:00:00Z"))
        return None
    return moment
