"""The bubbles of a training job: the panel on its page, its charts, and the operator's switch."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from cluster.core.roles import Permission
from jobs.core.errors import JobError
from jobs.core.states import ENDED, JobState
from jobs.models import Job
from telemetry.core.figures.bubble_use import use_over_time as drawn_use
from telemetry.core.figures.pipeline import pipeline_timeline
from telemetry.pages.access import demand, may, training_for
from telemetry.pages.training_figures import answer
from telemetry.pages.training_figures import pipeline as plain_pipeline
from tuning.models import BubbleUse
from tuning.queries.bubbles import bubbles_of, moments_of, tracks_with_guests
from tuning.services.bubbles import switch_lending


@login_required
@require_safe
def panel(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return the panel of a training job's bubbles."""
    return render(request, "tuning/bubbles.html", _context(request, training_for(request, job_id)))


@login_required
@require_POST
def switch(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Stop lending at once, or allow it again."""
    job = training_for(request, job_id)
    demand(request, job.team_id, Permission.OPERATE)
    lending = request.POST.get("lending") == "on"
    try:
        switch_lending(
            job_id=job.pk,
            lending=lending,
            actor=request.user.get_username(),
            reason=request.POST.get("reason", "").strip()[:1000],
        )
    except JobError as error:
        messages.error(request, f"Not done: {error}.")
    else:
        done = "Its bubbles may be used again." if lending else "Lending is stopped; trials go on elsewhere."
        messages.success(request, done)
    return redirect("training-job", job_id=job.pk)


@login_required
@require_safe
def timeline(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return one iteration of every rank, with what trials had of its bubbles in lanes between them."""
    job = training_for(request, job_id)
    is_plain = request.GET.get("by") == "simulated" or not BubbleUse.objects.filter(lender=job).exists()
    if is_plain:
        return answer(plain_pipeline(job, request))
    step, tracks = tracks_with_guests(job)
    if not tracks:
        return answer(plain_pipeline(job, request))
    drawn = pipeline_timeline(tracks)
    drawn["note"] = (
        f"Measured in step {step}; every rank on a clock of its own. {drawn['note']} "
        "The lanes of trials show how much of each bubble they had lately, from its beginning on."
    )
    return answer(drawn)


@login_required
@require_safe
def use_over_time(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return how much of each rank's bubbles was used over the last minutes."""
    job = training_for(request, job_id)
    moments = moments_of(job, timezone.now()) if BubbleUse.objects.filter(lender=job).exists() else []
    if not moments:
        return answer({"empty": "Nobody uses its bubbles."})
    return answer(drawn_use(moments))


def _context(request: HttpRequest, job: Job) -> dict[str, Any]:
    return {
        "job": job,
        "bubbles": bubbles_of(job, request.user, timezone.now()),
        "ended": job.state in ENDED,
        "runs": job.state == JobState.RUNNING,
        "may_switch": may(request, job.team_id, Permission.OPERATE),
    }
