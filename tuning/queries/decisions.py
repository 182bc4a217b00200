"""What was decided on a study's devices, for people."""

from datetime import datetime
from typing import NamedTuple

from jobs.models import Job
from journal.models import Event

DECISION = "coordinator.decision"
MOST = 12


class Decided(NamedTuple):
    """A decision in words, its reason, and when it was taken."""

    what: str
    reason: str
    at: datetime


def decisions_of(job: Job) -> list[Decided]:
    """Return the latest decisions on a study's devices, newest first."""
    rows = Event.objects.filter(stream_id=job.stream, kind=DECISION).order_by("-seq")[:MOST]
    return [Decided(_words(row.data), row.data["reason"], row.at) for row in rows]


def _words(data: dict[str, object]) -> str:
    sizes = data["sizes"] if isinstance(data["sizes"], list) else []
    subject = data["subject"]
    return {
        "ask": f"it can use {subject} device{'' if subject == '1' else 's'}",
        "release": f"{subject} goes back",
        "split": f"{subject} is cut into {' + '.join(map(str, sizes))}",
        "widen": f"{subject} trains on {sizes[0] if sizes else 'several'} devices",
        "keep": f"{subject} trains on one device",
        "fuse": f"{subject} takes {sizes[0] if sizes else 'its'} trial{'' if sizes == [1] else 's'}",
    }.get(str(data["kind"]), f"{data['kind']} {subject}")
