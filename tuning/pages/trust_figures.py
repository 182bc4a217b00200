"""Charts about rungs, costs and what carries over from surrogates to targets."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from jobs.models import Job
from telemetry.core.figures import (
    Layer,
    Mark,
    Pair,
    Share,
    agreement,
    rung_ladder,
    share_points,
    spending_bar,
    width_lines,
)
from telemetry.core.wording import duration_text
from tuning.queries.compiling import compile_sentences
from tuning.queries.ladder import fates_of, rungs_of
from tuning.queries.overview import elapsed_s
from tuning.queries.spending import alone_of, shares_of, spending_of
from tuning.queries.transfer import fidelity_of, report_of, twins_of

Drawn = dict[str, Any]


def rungs(job: Job, request: HttpRequest) -> Drawn:
    """The metric of every trial at every rung, and its fate there."""
    marks = [
        Mark(one.trial, one.rung, one.metric, one.fate, one.reason)
        for one in fates_of(job)
        if one.metric is not None
    ]
    if not marks:
        return {"empty": "Trials appear here when they reach the first rung."}
    return rung_ladder(marks, rungs=rungs_of(job), metric=job.study.metric, mode=job.study.mode)


def widths(job: Job, request: HttpRequest) -> Drawn:
    """The coordinate check of the transfer report."""
    layers = [
        Layer(one["layer"], one["scalings"], one["change"], one["slope"], one["passed"])
        for one in report_of(job).get("layers", ())
    ]
    if not layers:
        return {"empty": "The coordinate check of a transfer report appears here."}
    drawn = width_lines(layers)
    wrong = sum(not layer.passed for layer in layers)
    flat = f"{len(layers) - wrong} of {len(layers)} layers change by the same amount at every width"
    drawn["note"] = f"{flat}{', as they should' if not wrong else '; the others are drawn heavily'}."
    return drawn


def twins(job: Job, request: HttpRequest) -> Drawn:
    """Surrogates against their targets, or against models of twice their width."""
    if request.GET.get("with") == "wider":
        return _wider(job)
    pairs = [Pair(*twin) for twin in twins_of(job)]
    if not pairs:
        return {"empty": "The first target model will appear here, against its surrogate."}
    drawn = agreement(pairs, metric=job.study.metric, narrow="of the surrogate", wide="at full width")
    found = fidelity_of(job)
    if found is not None and found.spearman is not None:
        drawn["note"] = (
            f"Spearman {found.spearman:.2f} over {found.configurations} targets. Only the best are trained "
            "at full width, and among the best ranks agree less than over all."
        )
    return drawn


def _wider(job: Job) -> Drawn:
    report = report_of(job)
    pairs = [
        Pair(one["trial"], one["narrow"], one["wide"])
        for one in report.get("ranking", ())
        if one["narrow"] is not None and one["wide"] is not None
    ]
    if not pairs:
        return {"empty": "A transfer report ranks the same configurations at two widths."}
    narrow, wide = (f"at 1/{scaling} of the width" for scaling in report["rank_scalings"])
    drawn = agreement(pairs, metric=report["metric"], narrow=narrow, wide=wide)
    steps = f"After {report.get('rank_steps', 0)} training steps"
    if report["rank_correlation"] is not None:
        drawn["note"] = f"{steps}: Spearman {report['rank_correlation']:.2f}."
    return drawn


def shares(job: Job, request: HttpRequest) -> Drawn:
    """What every trial cost in its containers."""
    found = [Share(*share) for share in shares_of(job)]
    if not found:
        return {"empty": "Costs appear with the first epochs that are reported."}
    drawn = share_points(found, alone_of(job))
    drawn["note"] = "A trial's share of its container; building, evaluation and checkpoints included."
    return drawn


def spending(job: Job, request: HttpRequest) -> Drawn:
    """Device time by purpose."""
    parts = spending_of(job, elapsed_s(job, timezone.now()) or 0.0)
    if not any(parts.values()):
        return {"empty": "Device time appears here as soon as it is spent."}
    drawn = spending_bar(parts)
    times = job.study.spending
    extra = ("profiling", "repacking", "compiling", "check")
    overhead = sum(parts[name] for name in extra) / sum(parts.values())
    drawn["note"] = (
        f"The search took {duration_text(times['search_s'])}, the targets "
        f"{duration_text(times['target_s'])} beyond it. "
        f"Profiling, repacking, compiling and checks: {overhead:.1%} of all device time."
    )
    drawn["note"] = " ".join([drawn["note"], *compile_sentences(job)])
    drawn["height"] = 190
    return drawn


FIGURES: dict[str, Callable[[Job, HttpRequest], Drawn]] = {
    "rungs": rungs,
    "widths": widths,
    "twins": twins,
    "shares": shares,
    "spending": spending,
}
