"""A job's pipeline as its schedule would run it, from measured costs or from the model's work."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from jobs.core.errors import JobError
from jobs.core.pipeline import Durations, Timeline, build_schedule, simulate
from jobs.core.training import ModelShape
from jobs.core.training.calibration import FLOPS_PER_S, efficiency
from jobs.models import Job
from telemetry.core.figures.pipeline import KINDS, Piece, Track, chunk_name

WEIGHT_PART = 0.5  # share of the backward pass that is the weight gradient, where a schedule splits it
MOST_MICROBATCHES = 512


class Simulated(NamedTuple):
    """The tracks of a simulation, and where its durations come from."""

    tracks: list[Track]
    source: str


def simulated_tracks(job: Job) -> Simulated | None:
    """Return one iteration of a job as simulated; None where its layout cannot be drawn."""
    run, spec = job.training, job.spec
    layout = run.layout or {}
    costs = (run.costs or {}).get("ranks") or {}
    tracks = []
    try:
        for number, replica in enumerate(layout.get("replicas", [])):
            if replica["microbatches"] > MOST_MICROBATCHES:
                return None
            timeline = _timeline(replica, costs, spec)
            for stage, place in enumerate(replica["stages"]):
                label = f"replica {number}, stage {stage} · {', '.join(place['devices'])}"
                tracks.append(Track(label, _pieces(timeline, stage)))
    except (JobError, KeyError, TypeError, ValueError):
        return None
    source = "what the ranks measured" if costs else "an estimate of the model's work"
    return Simulated(tracks, source) if tracks else None


def _timeline(replica: Mapping[str, Any], costs: Mapping[str, Any], spec: Mapping[str, Any]) -> Timeline:
    stages = replica["stages"]
    schedule = build_schedule(spec.get("schedule", "1f1b"), len(stages), replica["microbatches"])
    shape = ModelShape(**spec["parameters"])
    forward: list[float] = []
    backward: list[float] = []
    first = 0
    for stage in stages:
        last = first + stage["layers"]
        f, b = _measured(stage, costs) or _estimated(shape, first, last, len(stage["devices"]))
        forward.append(f)
        backward.append(b)
        first = last
    chunks = schedule.model_chunks
    homes = [schedule.home(virtual)[0] for virtual in range(schedule.virtual_stages)]
    whole = [backward[rank] / chunks for rank in homes]
    split = WEIGHT_PART if schedule.splits_backward else 0.0
    durations = Durations(
        [forward[rank] / chunks for rank in homes],
        [seconds * (1 - split) for seconds in whole],
        [seconds * split for seconds in whole],
    )
    return simulate(schedule, durations)


def _measured(stage: Mapping[str, Any], costs: Mapping[str, Any]) -> tuple[float, float] | None:
    """A group waits for its slowest rank."""
    rows = [costs[name[1:]] for name in stage["devices"] if name[1:] in costs]
    if not rows:
        return None
    return max(row["forward_s"] for row in rows), max(row["backward_s"] for row in rows)


def _estimated(shape: ModelShape, first: int, last: int, size: int) -> tuple[float, float]:
    seconds = sum(map(shape.layer_flops, range(first, last))) / FLOPS_PER_S / (size * efficiency(size))
    return seconds, 2 * seconds


def _pieces(timeline: Timeline, rank: int) -> list[Piece]:
    chunks = [
        Piece(
            slot.chunk.kind.value,
            slot.start,
            slot.end,
            chunk_name(slot.chunk.kind.value, slot.chunk.microbatch),
        )
        for slot in timeline.slots[rank]
    ]
    waits = [Piece(b.name, b.start, b.end, KINDS[b.name][0]) for b in timeline.bubbles(rank)]
    return sorted([*chunks, *waits], key=lambda piece: piece.start_s)
