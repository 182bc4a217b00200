"""Reading the journal."""

from collections.abc import Iterator
from typing import NamedTuple

from journal.core.chain import Link, first_break
from journal.models import AuditEntry, Event, Stream


class Window(NamedTuple):
    """Which sequence numbers of a stream can still be read."""

    first_seq: int
    last_seq: int

    def can_resume(self, after: int) -> bool:
        """Whether every event after this number is still kept, and the number was ever given out."""
        return self.first_seq - 1 <= after <= self.last_seq


def window_of(stream: str) -> Window:
    """Return what is kept of a stream; a stream that never spoke is empty."""
    row = Stream.objects.filter(pk=stream).values_list("first_seq", "last_seq").first()
    return Window(*row) if row else Window(1, 0)


def events_after(stream: str, after: int, limit: int = 500) -> list[Event]:
    """Return the next events of a stream in order."""
    return list(Event.objects.filter(stream_id=stream, seq__gt=after).order_by("seq")[:limit])


def events_of_kind(stream: str, kind: str) -> list[Event]:
    """Return all kept events of one kind in a stream, in order."""
    return list(Event.objects.filter(stream_id=stream, kind=kind).order_by("seq"))


def broken_audit_entry() -> int | None:
    """Return the number of the first altered audit entry, or None if the chain holds."""
    return first_break(_links())


def _links() -> Iterator[Link]:
    for entry in AuditEntry.objects.order_by("number").iterator(chunk_size=2000):
        yield Link(entry.number, entry.content, entry.hash)
