"""What the ranks of a training job did when: layouts, pauses between them, incidents, the latest chunks."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from jobs.core.states import ENDED
from jobs.models import Iteration, Job, TrainingRun
from journal.queries import events_of_kind
from telemetry.core.figures.pipeline import measured_track
from telemetry.core.layouts import layout_view
from telemetry.core.verdict_facts import sentence
from telemetry.core.wording import duration_text
from telemetry.models import Verdict

Interval = dict[str, Any]
MOST_PIECES = 20_000
MOST_INCIDENTS = 200
PIECES = {"F": "forward", "B": "backward", "W": "weight"}


class Period(NamedTuple):
    """A layout from when to when, in seconds since the job began; `end_s` is None while it lasts."""

    start_s: float
    end_s: float | None
    number: int
    layout: Mapping[str, Any]
    step: int
    pause_s: float
    phases: Mapping[str, float]


class Kept(NamedTuple):
    """An iteration whose chunks are kept, and when it began."""

    step: int
    start_s: float
    ranks: list[dict[str, Any]]


def training_timeline(job: Job) -> dict[str, Any]:
    """Return the lanes of a training job: its layouts, its incidents, one for each rank.

    Kinds in lane `job`: `start`, `layout`, `reconfiguration` (the pause between two); in lane `incidents`
    those of verdicts; in a rank's lane `stage`, `idle` and `dead` while a layout lasts, and of the latest
    iterations every `forward`, `backward`, `weight` and `bubble`. `end_s` is null for what goes on.
    """
    if job.started_at is None:
        return {"lanes": []}
    run = job.training
    periods = _periods(job, run)
    lanes = [_lane("job", "layouts", _changes(periods))]
    if incidents := _incidents(job):
        lanes.append(_lane("incidents", "incidents", incidents))
    kept = _kept(job, run)
    for rank, device in enumerate(run.devices):
        label = f"r{rank} · {device['label']}"
        lanes.append(_lane(f"r{rank}", label, _of_rank(rank, periods, kept)))
    return {"lanes": lanes}


def _lane(lane_id: str, label: str, intervals: list[Interval]) -> dict[str, Any]:
    return {"id": lane_id, "label": label, "intervals": intervals}


def _interval(start_s: float, end_s: float | None, kind: str, label: str) -> Interval:
    return {"start_s": max(0.0, start_s), "end_s": end_s, "kind": kind, "label": label, "trials": []}


def _seconds(job: Job, at: datetime) -> float:
    assert job.started_at is not None
    return (at - job.started_at).total_seconds()


def _periods(job: Job, run: TrainingRun) -> list[Period]:
    """Return every layout that the event log still knows, the present one at least."""
    ended_s = _seconds(job, job.ended_at) if job.state in ENDED and job.ended_at else None
    rows = [(_seconds(job, event.at), event.data) for event in events_of_kind(job.stream, "training.layout")]
    if not rows and run.layout and run.devices:
        rows = [(0.0, {"epoch": run.epoch, "layout": run.layout})]
    found = [
        Period(
            at, ended_s, int(data["epoch"]), data["layout"], int(data.get("step") or 0),
            float(data.get("pause_s") or 0.0), data.get("phases") or {},
        )
        for at, data in rows
    ]  # fmt: skip
    # The next layout begins when its ranks went on; the time it took to get there belongs to neither.
    closed = [
        before._replace(end_s=max(before.start_s, after.start_s - after.pause_s))
        for before, after in pairwise(found)
    ]
    return [*closed, *found[-1:]]


def _changes(periods: list[Period]) -> list[Interval]:
    found, last_s = [], 0.0
    for index, period in enumerate(periods):
        kind, words = ("reconfiguration", "new layout") if index else ("start", "ranks start")
        phases = ", ".join(f"{name} {duration_text(seconds)}" for name, seconds in period.phases.items())
        found.append(_interval(last_s, period.start_s, kind, f"{words}: {phases}" if phases else words))
        label = f"layout {period.number}, from step {period.step + 1}: {layout_view(period.layout).in_words}"
        found.append(_interval(period.start_s, period.end_s, "layout", label))
        last_s = period.end_s or period.start_s
    return found


def _incidents(job: Job) -> list[Interval]:
    rows = Verdict.objects.filter(job=job).select_related("device__node").order_by("-opened_at", "-id")
    found = []
    for verdict in rows[:MOST_INCIDENTS]:
        end_s = _seconds(job, verdict.cleared_at) if verdict.cleared_at else None
        label = sentence(verdict, verdict.device)
        found.append(_interval(_seconds(job, verdict.opened_at), end_s, verdict.kind, label))
    return sorted(found, key=lambda row: row["start_s"])


def _kept(job: Job, run: TrainingRun) -> list[Kept]:
    """Return the latest iterations with their chunks, in order of time.

    Several are written down together: each one ends when the next begins, or when it was written.
    """
    rows = Iteration.objects.filter(run=run, ranks__isnull=False).order_by("-step")
    found: list[Kept] = []
    next_s, pieces = float("inf"), 0
    for row in rows:
        ranks = [each for each in row.ranks or [] if each.get("chunks")]
        pieces += sum(len(each["chunks"]) + len(each.get("bubbles", ())) for each in ranks)
        if pieces > MOST_PIECES:
            break
        next_s = min(next_s, _seconds(job, row.at)) - row.seconds
        found.append(Kept(row.step, next_s, ranks))
    return found[::-1]


def _of_rank(rank: int, periods: list[Period], kept: list[Kept]) -> list[Interval]:
    pieces = list(_pieces(rank, kept))
    first_s = pieces[0]["start_s"] if pieces else None
    found = []
    for period in periods:
        kind, label = _place(rank, period.layout)
        end_s = period.end_s
        if kind == "stage" and first_s is not None and (end_s is None or end_s > first_s):
            end_s = first_s  # from there on its chunks are known
        if end_s is None or end_s > period.start_s:
            found.append(_interval(period.start_s, end_s, kind, label))
    return [*found, *pieces]


def _pieces(rank: int, kept: list[Kept]) -> Iterable[Interval]:
    for iteration in kept:
        for row in iteration.ranks:
            if row.get("rank") != rank:
                continue
            for piece in measured_track("", row).pieces:
                start_s, end_s = iteration.start_s + piece.start_s, iteration.start_s + piece.end_s
                label = f"step {iteration.step}: {piece.label}"
                yield _interval(start_s, end_s, PIECES.get(piece.kind, "bubble"), label)


def _place(rank: int, layout: Mapping[str, Any]) -> tuple[str, str]:
    name = f"r{rank}"
    for i, replica in enumerate(layout.get("replicas", ())):
        for j, stage in enumerate(replica["stages"]):
            if name in stage["devices"]:
                layers = f"{stage['layers']} layer{'s' if stage['layers'] != 1 else ''}"
                count = replica["microbatches"]
                share = f"{count} micro-batch{'es' if count != 1 else ''}"
                return "stage", f"replica {i}, stage {j}: {layers}, {share}"
    return ("dead", "stopped") if name in layout.get("dead", ()) else ("idle", "left out")
