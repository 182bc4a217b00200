"""The life of nodes and devices."""

from enum import StrEnum


class DeviceState(StrEnum):
    """A device is placed on only while healthy."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    CORDONED = "cordoned"
    DRAINING = "draining"
    LOST = "lost"


DEVICE_MOVES: dict[DeviceState, set[DeviceState]] = {
    DeviceState.HEALTHY: {DeviceState.SUSPECT, DeviceState.CORDONED, DeviceState.DRAINING, DeviceState.LOST},
    DeviceState.SUSPECT: {DeviceState.HEALTHY, DeviceState.CORDONED, DeviceState.DRAINING, DeviceState.LOST},
    DeviceState.CORDONED: {DeviceState.HEALTHY, DeviceState.DRAINING, DeviceState.LOST},
    DeviceState.DRAINING: {DeviceState.HEALTHY, DeviceState.CORDONED, DeviceState.LOST},
    DeviceState.LOST: {DeviceState.HEALTHY, DeviceState.CORDONED},
}

# state -> (label, colour name of the palette in frontend/static/css/tokens.css)
DEVICE_LOOK: dict[DeviceState, tuple[str, str]] = {
    DeviceState.HEALTHY: ("healthy", "good"),
    DeviceState.SUSPECT: ("suspect", "warning"),
    DeviceState.CORDONED: ("cordoned", "muted"),
    DeviceState.DRAINING: ("draining", "warning"),
    DeviceState.LOST: ("lost", "bad"),
}


def can_move(old: DeviceState, new: DeviceState) -> bool:
    """Whether a device may go from one state to another."""
    return new in DEVICE_MOVES[old]


class ClusterName(StrEnum):
    """There are two clusters with a queue each: what is there, and what is rehearsed on."""

    REAL = "real"
    REHEARSAL = "rehearsal"


class EntryState(StrEnum):
    """Where a job of the queue is."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"  # told to save its state and leave
    ENDED = "ended"  # in the queue no more; what it had asked for stays known


class AllotmentState(StrEnum):
    """What a job has of a device."""

    HELD = "held"
    LEAVING = "leaving"  # told to give it back
    KEPT = "kept"  # will be its own when those who leave have left
