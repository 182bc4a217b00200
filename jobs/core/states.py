"""The lives of jobs and of reconfigurations: one table each."""

from enum import StrEnum


class JobKind(StrEnum):
    """What a job does."""

    STUDY = "study"
    TRAINING = "training"
    OVERLAP = "overlap"
    REHEARSAL = "rehearsal"


class JobState(StrEnum):
    """Where a job is; moments between are sub-states, free text."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


MOVES: dict[JobState, set[JobState]] = {
    JobState.QUEUED: {JobState.RUNNING, JobState.FAILED, JobState.CANCELLED},
    # Back to queued: preempted, or its driver is gone for good and another shall take it.
    JobState.RUNNING: {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.QUEUED},
    JobState.COMPLETED: set(),
    # Resume keeps what was finished.
    JobState.FAILED: {JobState.QUEUED},
    JobState.CANCELLED: {JobState.QUEUED},
}
ENDED = {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}

# state -> (label, colour name of the palette in frontend/static/css/tokens.css)
LOOK: dict[JobState, tuple[str, str]] = {
    JobState.QUEUED: ("queued", "muted"),
    JobState.RUNNING: ("running", "active"),
    JobState.COMPLETED: ("completed", "good"),
    JobState.FAILED: ("failed", "bad"),
    JobState.CANCELLED: ("cancelled", "warning"),
}


def can_move(old: JobState, new: JobState) -> bool:
    """Whether a job may go from one state to another."""
    return new in MOVES[old]


class FaultMode(StrEnum):
    """Faults that can be injected into a rank of a training job."""

    SLOW = "slow"
    STOP = "stop"
    FLAP = "flap"
    STALL = "stall"


class ReconfigurationKind(StrEnum):
    """The largest change that a plan makes to a training job's layout, from least to most."""

    REBALANCE = "rebalance"
    REPARTITION = "repartition"
    REGROUP = "regroup"
    EXCLUDE = "exclude"


class ReconfigurationState(StrEnum):
    """Where a planned change of a training job's layout is."""

    PROPOSED = "proposed"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    EXECUTING = "executing"
    EXECUTED = "executed"
    FAILED = "failed"


_R = ReconfigurationState
RECONFIGURATION_MOVES: dict[ReconfigurationState, set[ReconfigurationState]] = {
    _R.PROPOSED: {_R.APPROVED, _R.REJECTED, _R.EXPIRED, _R.SUPERSEDED},
    # Approved too long ago, or for a job that has moved on: nobody approved what would happen now.
    _R.APPROVED: {_R.EXECUTING, _R.EXPIRED, _R.SUPERSEDED},
    # A device that dies meanwhile makes another plan necessary.
    _R.EXECUTING: {_R.EXECUTED, _R.FAILED, _R.SUPERSEDED},
    _R.REJECTED: set(),
    _R.EXPIRED: set(),
    _R.SUPERSEDED: set(),
    _R.EXECUTED: set(),
    _R.FAILED: set(),
}
# Those that may still change the job; it has one of them at most.
PENDING = {_R.PROPOSED, _R.APPROVED, _R.EXECUTING}

RECONFIGURATION_LOOK: dict[ReconfigurationState, tuple[str, str]] = {
    _R.PROPOSED: ("waiting for approval", "warning"),
    _R.APPROVED: ("approved", "active"),
    _R.REJECTED: ("rejected", "muted"),
    _R.EXPIRED: ("expired", "muted"),
    _R.SUPERSEDED: ("superseded", "muted"),
    _R.EXECUTING: ("executing", "active"),
    _R.EXECUTED: ("executed", "good"),
    _R.FAILED: ("failed", "bad"),
}


def can_reconfigure(old: ReconfigurationState, new: ReconfigurationState) -> bool:
    """Whether a reconfiguration may go from one state to another."""
    return new in RECONFIGURATION_MOVES[old]
