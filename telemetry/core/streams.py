"""Names of event streams and the close codes of their WebSockets."""

from enum import IntEnum
from typing import NamedTuple
from uuid import UUID


class Close(IntEnum):
    """Why a WebSocket was closed (documented in docs/api.md)."""

    NOT_SIGNED_IN = 4401
    NOT_ALLOWED = 4403
    NO_SUCH_STREAM = 4404
    TOO_SLOW = 4408


class StreamName(NamedTuple):
    """`job:UUID`, `team:UUID`, or `fleet`, which has no id."""

    kind: str
    id: UUID | None


KINDS_WITH_ID = {"job", "team"}
KINDS_ALONE = {"fleet"}


def parse_stream(name: str) -> StreamName | None:
    """Return the parts of a stream's name, or None where there can be no such stream."""
    kind, _, rest = name.partition(":")
    if kind in KINDS_ALONE and not rest and name == kind:
        return StreamName(kind, None)
    if kind not in KINDS_WITH_ID:
        return None
    try:
        return StreamName(kind, UUID(rest))
    except ValueError:
        return None
