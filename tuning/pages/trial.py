"""The page of a trial."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from journal.queries import window_of
from telemetry.core.figures import Curve, learning_curves
from telemetry.core.wording import printable
from tuning.models import Container, Target, Trial
from tuning.pages.access import study_for
from tuning.pages.figures import strict
from tuning.queries.curves import points
from tuning.queries.overview import facts_of
from tuning.queries.spaces import space_of

LOG_LINES = 400


@login_required
@require_safe
def trial(request: HttpRequest, job_id: UUID, number: int) -> HttpResponse:
    """Show a trial: configuration against the best, curve, log, container and target."""
    job = study_for(request, job_id)
    seq = window_of(job.stream).last_seq
    row = Trial.objects.filter(job=job, number=number).first()
    if row is None:
        raise Http404(f"The study has no trial {number} yet.")
    best = facts_of(job).best
    lines = printable(row.log).split("\n")
    wanted = request.GET.get("log", "").strip()
    found = [line for line in lines if wanted.lower() in line.lower()] if wanted else lines
    context = {
        "section": "studies",
        "job": job,
        "study": job.study,
        "trial": row,
        "best": best,
        "is_best": best is not None and best.pk == row.pk,
        "config": compared(row, best, list(space_of(job))),
        "containers": Container.objects.filter(job=job, trials__contains=[number]).select_related("device"),
        "target": Target.objects.filter(job=job, trial=row).select_related("model").first(),
        "log": "\n".join(found[-LOG_LINES:]).strip("\n"),
        "log_lines": len(found) if row.log else 0,
        "log_shown": min(len(found), LOG_LINES),
        "log_filter": wanted,
        "previous": Trial.objects.filter(job=job, number__lt=number)
        .order_by("-number")
        .values_list("number", flat=True)
        .first(),
        "next": Trial.objects.filter(job=job, number__gt=number)
        .order_by("number")
        .values_list("number", flat=True)
        .first(),
        "seq": seq,
    }
    return render(request, "tuning/trial.html", context)


@login_required
@require_safe
def trial_curve(request: HttpRequest, job_id: UUID, number: int) -> HttpResponse:
    """Return a trial's curve beside the best one's and its target's."""
    job = study_for(request, job_id)
    row = Trial.objects.filter(job=job, number=number).first()
    if row is None:
        raise Http404(f"The study has no trial {number} yet.")
    if not row.curve:
        return JsonResponse({"empty": "The curve appears with the first epoch that is reported."})
    best = facts_of(job).best
    curves = [Curve(f"trial {number}", points(row.curve), is_best=True)]
    if best is not None and best.pk != row.pk:
        curves.append(Curve(f"best, trial {best.number}", points(best.curve), is_chosen=True))
    target = Target.objects.filter(job=job, trial=row).first()
    if target is not None and target.curve:
        curves.append(Curve("its target model", points(target.curve), is_chosen=True))
    return JsonResponse(strict(learning_curves(curves, metric=job.study.metric, mode=job.study.mode)))


def compared(row: Trial, best: Trial | None, order: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return a trial's configuration beside the best one's, with the difference where both are numbers."""
    other = best.config if best else {}
    present = dict.fromkeys([*row.config, *other])
    names = [*(n for n in order if n in present), *(n for n in present if n not in order)]
    return [
        {
            "name": name,
            "value": row.config.get(name),
            "best": other.get(name),
            "is_same": row.config.get(name) == other.get(name),
            "difference": difference(row.config.get(name), other.get(name)),
        }
        for name in names
    ]


def difference(value: Any, other: Any) -> str:
    """Return how a number differs from another: as a factor where both are positive and far apart."""
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in (value, other)):
        return ""
    if value == other:
        return "same"
    if value > 0 and other > 0 and max(value / other, other / value) >= 2:
        return f"× {value / other:.3g}"
    return f"{value - other:+.3g}".replace("-", "−")
