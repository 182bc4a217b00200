"""What one tick decides, in full: starts, stops, and a reason with a prediction for everybody who waits."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cluster.core.decision.predictions import Prediction
from cluster.core.decision.reasons import NEXT_STEP, Obstacle, Reason
from cluster.core.decision.state import JobView, Slice

SET_ASIDE = {Reason.HELD, Reason.QUEUE_HELD, Reason.UNSATISFIABLE, Reason.QUOTA_CEILING}


@dataclass(frozen=True, slots=True)
class Start:
    """A job that starts on these devices, once the jobs of `after` have given theirs back."""

    job_id: str
    slices: tuple[Slice, ...]
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preemption:
    """A running job to stop at its next checkpoint.

    Attributes:
        cause: `class`, `guarantee`, `policy`, `reservation`, `deadline`, `drain` or `node_lost`.
        for_job: who gets the devices; empty for a drain or a lost node.
    """

    job_id: str
    cause: str
    for_job: str = ""


@dataclass(frozen=True, slots=True)
class Resize:
    """A running job that has so many thousandths of each of its devices from now on: it shares them, or
    not any more.
    """

    job_id: str
    milli: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waits, where it stands and when it will start.

    Attributes:
        position: from 1; None for jobs that are set aside.
        ahead: ids right before it that want the same devices, nearest first, five at most.
    """

    job_id: str
    reason: str
    message: str
    next_step: str
    numbers: Mapping[str, int]
    position: int | None
    ahead: tuple[str, ...]
    behind: str
    predicted_start_s: float | None
    earliest_start_s: float | None
    latest_start_s: float | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What one tick decides; everything in it is told, nothing is implied.

    Attributes:
        order: all waiting jobs as they were considered.
        devices: kind to total, used, free and drained thousandths before the decision.
    """

    policy: str
    now_s: float
    order: tuple[str, ...]
    starts: tuple[Start, ...]
    preemptions: tuple[Preemption, ...]
    waits: Mapping[str, Wait]
    devices: Mapping[str, Mapping[str, int]]
    resized: tuple[Resize, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the decision as JSON values, for the log."""
        return asdict(self)


def stands_in_line(obstacle: Obstacle | None) -> bool:
    """Whether a waiting job has a position, rather than being set aside."""
    return obstacle is not None and obstacle.reason not in SET_ASIDE


def explain_waits(
    order: Sequence[JobView],
    counted: Sequence[JobView],
    obstacles: Mapping[str, Obstacle],
    predictions: Mapping[str, Prediction],
) -> dict[str, Wait]:
    """Return for every waiting job its reason, position, those ahead and the predicted start."""
    positions = {job.id: position for position, job in enumerate(counted, start=1)}
    nobody = Prediction(None, None, None)
    waits = {}
    for job in order:
        obstacle = obstacles.get(job.id)
        if obstacle is None:
            continue
        position = positions.get(job.id)
        prediction = predictions.get(job.id, nobody)
        waits[job.id] = Wait(
            job_id=job.id,
            reason=obstacle.reason.value,
            message=obstacle.message,
            next_step=NEXT_STEP[obstacle.reason],
            numbers=obstacle.numbers,
            position=position,
            ahead=_ahead(job, counted, position),
            behind=obstacle.behind,
            predicted_start_s=prediction.middle_s,
            earliest_start_s=prediction.early_s,
            latest_start_s=prediction.late_s,
        )
    return waits


def _ahead(job: JobView, counted: Sequence[JobView], position: int | None) -> tuple[str, ...]:
    if position is None:
        return ()
    rivals: list[str] = []
    for other in reversed(counted[: position - 1]):
        if not job.kinds or not other.kinds or set(job.kinds) & set(other.kinds):
            rivals.append(other.id)
        if len(rivals) == 5:
            break
    return tuple(rivals)
