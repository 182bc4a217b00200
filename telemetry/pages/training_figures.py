"""The charts of a training job and of an incident as JSON for the browser, which paints them in its theme."""

import json
import math
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from jobs.models import Job
from telemetry.core.figures.failure_counts import failure_counts
from telemetry.core.figures.iterations import iteration_times, loss_curve
from telemetry.core.figures.pipeline import pipeline_timeline
from telemetry.core.figures.raw_series import raw_series
from telemetry.models import Verdict
from telemetry.pages.access import training_for, verdict_for
from telemetry.queries.failure_counts import PERIODS, failures_for, over_time
from telemetry.queries.simulated import simulated_tracks
from telemetry.queries.training import marks_of, measured_tracks, steps_of

Drawn = dict[str, Any]


@login_required
@require_safe
def training_figure(request: HttpRequest, job_id: UUID, name: str) -> HttpResponse:
    """Return one chart of a training job: `data`, `layout`, a `note`, or a word on why there is none yet."""
    job = training_for(request, job_id)
    if name not in FIGURES:
        raise Http404(f"A training job has no figure {name}.")
    return answer(FIGURES[name](job, request))


@login_required
@require_safe
def verdict_series(request: HttpRequest, verdict_id: UUID) -> HttpResponse:
    """Return the raw series of a verdict."""
    return answer(series_of(verdict_for(request, verdict_id)))


@login_required
@require_safe
def failure_figure(request: HttpRequest) -> HttpResponse:
    """Return how often what broke in a period."""
    period = request.GET.get("period", "day")
    period = period if period in PERIODS else "day"
    times, counts = over_time(failures_for(request.user), period)
    if not counts:
        return answer({"empty": f"Nothing broke in the {PERIODS[period][0]}."})
    return answer(failure_counts(times, counts, PERIODS[period][2]))


def answer(drawn: Drawn) -> HttpResponse:
    """Return a figure as strict JSON that nobody keeps."""
    text = json.dumps(strict(drawn), separators=(",", ":"), allow_nan=False)
    return HttpResponse(text, "application/json", headers={"Cache-Control": "no-store"})


def iterations(job: Job, request: HttpRequest) -> Drawn:
    """Iteration times, observed and expected."""
    steps = steps_of(job.training)
    if not steps:
        return {"empty": "The first iteration will appear here."}
    return iteration_times(steps, marks_of(job))


def loss(job: Job, request: HttpRequest) -> Drawn:
    """The loss over the steps."""
    steps = steps_of(job.training)
    if not any(step.loss is not None for step in steps):
        return {"empty": "The loss appears with the first iteration."}
    return loss_curve(steps)


def pipeline(job: Job, request: HttpRequest) -> Drawn:
    """One iteration, as measured by the ranks; simulated on request, or while nothing was measured."""
    step, tracks = measured_tracks(job.training)
    if tracks and request.GET.get("by") != "simulated":
        drawn = pipeline_timeline(tracks)
        drawn["note"] = f"Measured in step {step}; every rank on a clock of its own. {drawn['note']}"
        return drawn
    found = simulated_tracks(job)
    if not found:
        return {"empty": "The timeline appears with the first iteration."}
    drawn = pipeline_timeline(found.tracks)
    drawn["note"] = f"Simulated from {found.source}. {drawn['note']}"
    return drawn


def series_of(verdict: Verdict) -> Drawn:
    """The samples that a verdict was made of."""
    series = verdict.series or {}
    steps, subject = series.get("steps") or [], series.get("subject") or []
    if not steps or not subject:
        return {"empty": "No raw series was kept of this verdict."}
    peers = {"median of its peers": series["peers"]} if series.get("peers") else {}
    return raw_series(
        steps,
        subject,
        peers,
        name=verdict.subject_key or "the whole job",
        unit=str(series.get("unit") or "seconds"),
        first_step=verdict.first_step,
        detected_step=verdict.detected_step,
    )


FIGURES: dict[str, Callable[[Job, HttpRequest], Drawn]] = {
    "iterations": iterations,
    "loss": loss,
    "pipeline": pipeline,
}


def strict(value: Any) -> Any:
    """Return the value with numbers that JSON cannot hold as null."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
