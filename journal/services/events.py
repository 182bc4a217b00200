"""Appending to event streams."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection, transaction

from journal.models import Event, Stream

NOTIFY_CHANNEL = "forebay_events"

# The row lock of the upsert is held until commit, so sequence numbers become visible in order.
ADVANCE = """
INSERT INTO journal_stream (name, last_seq, first_seq) VALUES (%s, %s, 1)
ON CONFLICT (name) DO UPDATE SET last_seq = journal_stream.last_seq + EXCLUDED.last_seq
RETURNING last_seq, first_seq
"""


class Fact(NamedTuple):
    """An event before it has a number."""

    kind: str
    data: dict[str, Any]


@transaction.atomic
def record(stream: str, facts: Iterable[Fact]) -> int:
    """Append facts to a stream within the caller's transaction; return the last sequence number."""
    rows = list(facts)
    if not rows:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(ADVANCE, [stream, len(rows)])
        last, first = cursor.fetchone()
        start = last - len(rows) + 1
        Event.objects.bulk_create(
            Event(stream_id=stream, seq=start + i, kind=f.kind, data=f.data) for i, f in enumerate(rows)
        )
        cursor.execute(
            "SELECT pg_notify(%s, %s)", [NOTIFY_CHANNEL, json.dumps({"stream": stream, "seq": last})]
        )
    _forget_old(stream, first, last)
    return int(last)


def _forget_old(stream: str, first: int, last: int) -> None:
    kept: int = settings.EVENTS_KEPT
    # A tenth of slack, so that a busy stream is not trimmed on every write.
    if last - first + 1 <= kept + kept // 10:
        return
    oldest = last - kept + 1
    Event.objects.filter(stream_id=stream, seq__lt=oldest).delete()
    Stream.objects.filter(pk=stream).update(first_seq=oldest)
