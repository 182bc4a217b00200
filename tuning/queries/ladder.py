"""The rung ladder of a study: how many trials reached each rung, and what became of them there."""

from typing import Any, NamedTuple

from django.db.models.fields.json import KeyTransform

from jobs.models import Job
from tuning.core.halving import ranked, rung_epochs
from tuning.core.states import TRIAL_ENDED, TrialState
from tuning.models import Trial


class Fate(NamedTuple):
    """A trial at a rung; `fate` is `went on`, `stopped`, `waiting` or `ended` (failed or cut there)."""

    trial: int
    rung: int
    metric: float | None
    fate: str
    reason: str


class Rung(NamedTuple):
    """One rung: trials by fate, and the metric of the best and the worst that went on."""

    epoch: int
    reached: int
    went_on: int
    stopped: int
    waiting: int
    ended: int
    best: float | None
    cutoff: float | None


def rungs_of(job: Job) -> tuple[int, ...]:
    """Return the epochs at which this study's trials are judged; none without ASHA."""
    scheduler = job.spec.get("scheduler") or {}
    if not isinstance(scheduler, dict) or not str(scheduler.get("name", "")).startswith("asha"):
        return ()
    return rung_epochs(scheduler["grace"], scheduler["reduction"], job.spec.get("epochs") or 0)


def fates_of(job: Job) -> list[Fate]:
    """Return every trial at every rung that it reached."""
    rungs = rungs_of(job)
    if not rungs:
        return []
    # A trial reports every epoch, so a rung's entry lies at its own place; only these are read.
    entries = {f"rung_{rung}": KeyTransform(rung - 1, "curve") for rung in rungs}
    rows = Trial.objects.filter(job=job, epochs__gte=rungs[0]).annotate(**entries).order_by("number")
    columns = ("number", "state", "epochs", "reason", *entries)
    found = []
    for number, state, epochs, reason, *points in rows.values_list(*columns).iterator(chunk_size=10_000):
        for rung, point in zip(rungs, points, strict=True):
            if epochs >= rung:
                fate = _fate(state, epochs, rung)
                metric = point[1] if point and point[0] == rung else None
                found.append(Fate(number, rung, metric, fate, (reason or "") if epochs == rung else ""))
    return found


def _fate(state: str, epochs: int, rung: int) -> str:
    if epochs > rung:
        return "went on"
    if state == TrialState.STOPPED:
        return "stopped"
    return "ended" if state in TRIAL_ENDED else "waiting"


def ladder_of(job: Job) -> list[Rung]:
    """Return the rungs with their counts, lowest first."""
    fates = fates_of(job)
    return [_rung(rung, [f for f in fates if f.rung == rung], job.study.mode) for rung in rungs_of(job)]


def _rung(epoch: int, fates: list[Fate], mode: str) -> Rung:
    count: dict[str, int] = {}
    for one in fates:
        count[one.fate] = count.get(one.fate, 0) + 1
    metrics: dict[int, Any] = {one.trial: one.metric for one in fates}
    order = [trial for trial in ranked(metrics, mode) if metrics[trial] is not None]
    on = {one.trial for one in fates if one.fate == "went on"}
    let_through = [metrics[trial] for trial in order if trial in on]
    return Rung(
        epoch,
        len(fates),
        count.get("went on", 0),
        count.get("stopped", 0),
        count.get("waiting", 0),
        count.get("ended", 0),
        metrics[order[0]] if order else None,
        let_through[-1] if let_through else None,
    )
