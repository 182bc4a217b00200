"""Why a job waits: one dominant reason with its numbers and what would help."""

from dataclasses import dataclass, field
from enum import StrEnum


class Reason(StrEnum):
    """In order of dominance: where several hold, the first one is told."""

    HELD = "held"
    QUEUE_HELD = "queue_held"
    UNSATISFIABLE = "unsatisfiable"
    PREEMPTING = "preempting"
    QUOTA_CEILING = "quota_ceiling"
    BORROW_LIMIT = "borrow_limit"
    LENT_OUT = "waiting_for_quota"
    RESERVED = "reserved"
    PIN_BUSY = "pin_busy"
    TOPOLOGY = "topology"
    FRAGMENTED = "fragmented"
    NO_DEVICES = "waiting_for_devices"
    BEHIND = "behind"


NEXT_STEP: dict[Reason, str] = {
    Reason.HELD: "Release the job.",
    Reason.QUEUE_HELD: "An operator has to release the queue.",
    Reason.UNSATISFIABLE: "Ask for fewer or other devices, or wait until the cluster grows.",
    Reason.PREEMPTING: "Nothing: it starts as soon as the stopped jobs have saved their state.",
    Reason.QUOTA_CEILING: "Ask for less, or ask an operator for more quota.",
    Reason.BORROW_LIMIT: "Wait until a job of your team ends, or ask for a higher borrowing limit.",
    Reason.LENT_OUT: "Wait until your team's or a borrower's jobs end, or ask for more guaranteed quota.",
    Reason.RESERVED: "Wait until the reservation ends, or declare a time limit that ends before it begins.",
    Reason.PIN_BUSY: "Drop the pin, or wait for that node.",
    Reason.TOPOLOGY: "Ask for the level as preferred instead of required, or wait.",
    Reason.FRAGMENTED: "Allow smaller tasks, or wait until one node has enough together.",
    Reason.NO_DEVICES: "Wait, or ask for fewer devices.",
    Reason.BEHIND: "Declare a shorter time limit, so that it can go first without delaying the other.",
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason with its sentence and numbers."""

    reason: Reason
    message: str
    numbers: dict[str, int] = field(default_factory=dict)
    behind: str = ""

    def rank(self) -> int:
        """Return its place in the order of dominance."""
        return RANK[self.reason]


RANK = {reason: rank for rank, reason in enumerate(Reason)}


def devices_text(milli: int) -> str:
    """Return an amount for people: `3 devices`, `0.5 devices`, `1 device`."""
    return f"{milli / 1000:g} device{'' if milli == 1000 else 's'}"
