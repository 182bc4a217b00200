"""The life of a trial: one table."""

from enum import StrEnum


class TrialState(StrEnum):
    """Where a trial is."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    CUT = "cut"


TRIAL_MOVES: dict[TrialState, set[TrialState]] = {
    # Stopped while waiting: paused at a rung and not promoted.
    TrialState.WAITING: {TrialState.RUNNING, TrialState.STOPPED, TrialState.CUT, TrialState.FAILED},
    # Back to waiting: paused at a rung, or its container died.
    TrialState.RUNNING: {
        TrialState.WAITING,
        TrialState.COMPLETED,
        TrialState.STOPPED,
        TrialState.FAILED,
        TrialState.CUT,
    },
    TrialState.COMPLETED: set(),
    TrialState.STOPPED: set(),
    TrialState.FAILED: set(),
    # Cut by a deadline or an interrupt: a resumed study takes it up again.
    TrialState.CUT: {TrialState.WAITING},
}
TRIAL_ENDED = {TrialState.COMPLETED, TrialState.STOPPED, TrialState.FAILED, TrialState.CUT}

# state -> (label, colour name of the palette in frontend/static/css/tokens.css)
TRIAL_LOOK: dict[TrialState, tuple[str, str]] = {
    TrialState.WAITING: ("waiting", "muted"),
    TrialState.RUNNING: ("running", "active"),
    TrialState.COMPLETED: ("completed", "good"),
    TrialState.STOPPED: ("stopped", "muted"),
    TrialState.FAILED: ("failed", "bad"),
    TrialState.CUT: ("cut", "warning"),
}


def can_move(old: TrialState, new: TrialState) -> bool:
    """Whether a trial may go from one state to another."""
    return new in TRIAL_MOVES[old]
