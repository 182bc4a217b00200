"""What goes over the wire: strict JSON, encoded once per event however many listen."""

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from journal.models import Event


class Frame(NamedTuple):
    """An event on its way to browsers."""

    seq: int
    text: str


def frame_of(event: Event) -> Frame:
    """Encode an event."""
    body = {
        "stream": event.stream_id,
        "seq": event.seq,
        "kind": event.kind,
        "at": utc(event.at),
        "data": event.data,
    }
    return Frame(event.seq, json.dumps(body, allow_nan=False, separators=(",", ":")))


def reset_frame(stream: str, seq: int, snapshot: dict[str, Any]) -> Frame:
    """Encode a fresh start: the present state and the number it includes."""
    return Frame(seq, json.dumps({"stream": stream, "reset": snapshot, "seq": seq}, allow_nan=False))


def utc(moment: datetime) -> str:
    """Write a time as the API does everywhere."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
