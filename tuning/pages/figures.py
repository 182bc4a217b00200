"""The charts of a study as JSON for the browser, which paints them in its theme."""

import json
import math
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from jobs.models import Job
from telemetry.core.figures import (
    Importance,
    Lane,
    Link,
    Span,
    best_so_far,
    importance_bars,
    learning_curves,
    timeline,
)
from telemetry.core.wording import printable
from tuning.core.importance import LEAST_TRIALS, METHOD
from tuning.pages import trust_figures
from tuning.pages.access import study_for
from tuning.queries.curves import attempts_of, curves_of, parallel_of, target_marks_of
from tuning.queries.importance import importance_of
from tuning.queries.overview import elapsed_s
from tuning.queries.timeline import timeline_of
from tuning.queries.trials import COLUMNS, CONFIG

Drawn = dict[str, Any]


@login_required
@require_safe
def figure(request: HttpRequest, job_id: UUID, name: str) -> HttpResponse:
    """Return one chart of a study: `data`, `layout`, a `note`, or a word on why there is none yet."""
    job = study_for(request, job_id)
    if name not in FIGURES:
        raise Http404(f"A study has no figure {name}.")
    drawn = strict(FIGURES[name](job, request))
    response = HttpResponse(json.dumps(drawn, separators=(",", ":"), allow_nan=False), "application/json")
    response["Cache-Control"] = "no-store"
    return response


def history(job: Job, request: HttpRequest) -> Drawn:
    """The best metric so far."""
    attempts = attempts_of(job)
    if not attempts:
        return {"empty": "The first finished trial will appear here."}
    by = "number" if request.GET.get("by") == "number" else "time"
    return best_so_far(
        attempts, metric=job.study.metric, mode=job.study.mode, by=by, targets=target_marks_of(job)
    )


def curves(job: Job, request: HttpRequest) -> Drawn:
    """Learning curves of the best 20 trials and of the chosen ones."""
    chosen = [int(n) for n in request.GET.get("trials", "").split(",") if n.isdigit() and len(n) < 10]
    found = curves_of(job, chosen)
    if not any(curve.points for curve in found):
        return {"empty": "Curves appear with the first epochs that are reported."}
    drawn = learning_curves(found, metric=job.study.metric, mode=job.study.mode)
    others = sum(not c.is_chosen for c in found)
    drawn["note"] = f"The best {others} trials." if others else ""
    return drawn


def importance(job: Job, request: HttpRequest) -> Drawn:
    """Parameter importance with its method, its uncertainty and how far to trust it."""
    found = importance_of(job)
    if found.explanation is None:
        left = max(LEAST_TRIALS - found.scored, 0)
        return {
            "empty": f"{left} more finished trials are needed to tell."
            if left
            else "The trials do not differ, so nothing can be told apart."
        }
    explanation = found.explanation
    bars = importance_bars([Importance(*share) for share in explanation.shares])
    trust = "" if explanation.r2 >= 0.3 else " That is little: do not read much into the bars."
    bars["note"] = (
        f"{METHOD[0].upper()}{METHOD[1:]}, over {explanation.trials} of {found.scored} trials; whiskers are "
        f"one standard deviation over the folds. The forest explains {max(explanation.r2, 0):.0%} of the "
        f"difference in rank between trials it had not seen.{trust}"
    )
    return bars


def makespan(job: Job, request: HttpRequest) -> Drawn:
    """What ran when on which device."""
    now_s = elapsed_s(job, timezone.now()) or 0.0
    found = timeline_of(job)["lanes"]
    lanes = [Lane(lane["label"], [_span(one, now_s) for one in lane["intervals"]]) for lane in found]
    if not lanes:
        return {"empty": "Devices appear here as soon as trials run on them."}
    links = _links(found)
    drawn = timeline(lanes, links)
    drawn["height"] = 92 + 34 * len(lanes)
    changes = [one["change"] for lane in found for one in lane["intervals"] if one.get("change")]
    if changes:
        counts = f"{changes.count('merge')} containers merged from others, {changes.count('split')} split off"
        drawn["note"] = f"{drawn['note']} {counts}, {changes.count('moved')} repacked.".strip()
    return drawn


def _links(lanes: list[dict[str, Any]]) -> list[Link]:
    """Return a line from each container to those in which its trials went on."""
    ends = {
        one["id"]: (lane["label"], one["end_s"])
        for lane in lanes
        for one in lane["intervals"]
        if one.get("id") and one["end_s"] is not None
    }
    return [
        Link(*ends[source], lane["label"], one["start_s"], one["change"], one["label"])
        for lane in lanes
        for one in lane["intervals"]
        for source in one.get("from", ())
        if source in ends
    ]


def _span(interval: dict[str, Any], now_s: float) -> Span:
    end = interval["end_s"] if interval["end_s"] is not None else max(now_s, interval["start_s"])
    return Span(interval["start_s"], end, interval["kind"], interval["label"])


def parallel(job: Job, request: HttpRequest) -> Drawn:
    """Configurations as lines, for the page's own canvas."""
    found = parallel_of(job)
    if not found.axes or len(found.numbers) < 2:
        return {"empty": "Two finished trials that differ are needed."}
    keep = [i for i, metric in enumerate(found.metrics) if math.isfinite(metric)]
    axes = [
        {
            "name": printable(axis.name),
            "key": CONFIG + axis.name if axis.name in COLUMNS else axis.name,
            "kind": axis.kind,
            "values": [axis.values[i] for i in keep],
            "categories": [printable(c)[:40] for c in axis.categories],
        }
        for axis in found.axes
    ]
    metrics = [found.metrics[i] for i in keep]
    axes.append(
        {
            "name": printable(job.study.metric),
            "key": "metric",
            "kind": "linear",
            "values": metrics,
            "categories": [],
        }
    )
    drawn, total = len(keep), found.total
    note = (
        f"{drawn} of {total} trials drawn: the best, and an even sample of the rest." if drawn < total else ""
    )
    return {"axes": axes, "numbers": [found.numbers[i] for i in keep], "mode": job.study.mode, "note": note}


FIGURES: dict[str, Callable[[Job, HttpRequest], Drawn]] = {
    "history": history,
    "curves": curves,
    "importance": importance,
    "makespan": makespan,
    "parallel": parallel,
    **trust_figures.FIGURES,
}


def strict(value: Any) -> Any:
    """Return the value with numbers that JSON cannot hold as null."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
