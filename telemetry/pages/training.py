"""The page of a training job, its parts, and what can be done with it."""

import math
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from cluster.core.roles import Permission
from jobs.core.errors import InvalidSpec, JobError
from jobs.core.states import ENDED, FaultMode, JobState, ReconfigurationState
from jobs.models import Job
from jobs.services.lifecycle import cancel_job, resume_job
from jobs.services.training import LARGEST_FACTOR, LONGEST_FAULT_S, inject_fault, living_ranks
from journal.queries import window_of
from telemetry.core.states import VerdictKind
from telemetry.models import Verdict
from telemetry.pages.access import demand, may, training_for
from telemetry.pages.training_form import spec_rows
from telemetry.queries.training import elapsed_s, layout_of, slowdowns_of

ROWS = 20
# mode -> (what the button says, what really happens)
FAULTS = {
    FaultMode.SLOW: ("Slow down", "every chunk of work takes that many times as long; a factor of 1 ends it"),
    FaultMode.FLAP: ("Flap", "slow and healthy in turns"),
    FaultMode.STALL: ("Stall", "does nothing for a while, then goes on"),
    FaultMode.STOP: ("Stop", "the process halts and answers nothing any more, as if its machine had died"),
}


@login_required
@require_safe
def training_job(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Show a training job."""
    job = training_for(request, job_id)
    seq = window_of(job.stream).last_seq
    context = _head(request, job) | _recovery(request, job)
    context |= {"section": "training", "seq": seq, "spec": spec_rows(job.spec)}
    return render(request, "telemetry/training_job.html", context)


@login_required
@require_safe
def head(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return the head of a training job's page."""
    return render(request, "telemetry/training_head.html", _head(request, training_for(request, job_id)))


@login_required
@require_safe
def recovery(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return a job's layout, incidents, plans and injected faults."""
    return render(
        request, "telemetry/training_recovery.html", _recovery(request, training_for(request, job_id))
    )


@login_required
@require_POST
def cancel(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Cancel a training job."""
    done = "The job is being cancelled; its last checkpoint stays, and it can be resumed from there."
    return _act(request, job_id, cancel_job, done)


@login_required
@require_POST
def resume(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Resume a failed or cancelled training job."""
    return _act(request, job_id, resume_job, "The job is queued again and goes on from its last checkpoint.")


@login_required
@require_POST
def inject(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Inject a fault into a rank, as operators rehearse."""
    job = training_for(request, job_id)
    demand(request, job.team_id, Permission.OPERATE)
    try:
        fault = _fault(request)
        inject_fault(job_id=job.pk, actor=request.user.get_username(), **fault)
    except InvalidSpec as error:
        messages.error(request, f"Not done: {'; '.join(rule for _, rule in error.faults)}.")
    except JobError as error:
        messages.error(request, f"Not done: {error}.")
    else:
        messages.success(request, f"Rank {fault['rank']}: {fault['mode'].value} is on its way.")
    return redirect("training-job", job_id=job.pk)


def _fault(request: HttpRequest) -> dict[str, Any]:
    """Return the fault that a form means; raise InvalidSpec for what makes no sense."""
    faults: list[tuple[str, str]] = []
    mode, rank = request.POST.get("mode", ""), request.POST.get("rank", "")
    if mode not in set(FaultMode):
        faults.append(("/mode", f"choose one of {', '.join(FaultMode)}"))
    if not rank.isdecimal() or len(rank) > 7:
        faults.append(("/rank", "the rank is a whole number"))
    factor = _number(request.POST.get("factor") or "2", 1.0, LARGEST_FACTOR)
    if factor is None:
        faults.append(("/factor", f"the factor is a number from 1 to {LARGEST_FACTOR:g}"))
    text = request.POST.get("seconds", "").strip()
    seconds = _number(text, 0.1, LONGEST_FAULT_S) if text else None
    if text and seconds is None:
        faults.append(("/seconds", f"the duration is a number of seconds from 0.1 to {LONGEST_FAULT_S:g}"))
    if faults:
        raise InvalidSpec(faults)
    return {"mode": FaultMode(mode), "rank": int(rank), "factor": factor, "seconds": seconds}


def _number(text: str, low: float, high: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and low <= value <= high else None


def _act(request: HttpRequest, job_id: UUID, service: Any, done: str) -> HttpResponse:
    job = training_for(request, job_id)
    demand(request, job.team_id, Permission.SUBMIT)
    seen = request.POST.get("version", "")
    version = int(seen) if seen.isdecimal() and len(seen) < 10 else None
    try:
        service(job_id=job.pk, actor=request.user.get_username(), seen_version=version)
        messages.success(request, done)
    except JobError as error:
        messages.error(request, f"Not done: {error}.")
    return redirect("training-job", job_id=job.pk)


def _head(request: HttpRequest, job: Job) -> dict[str, Any]:
    run = job.training
    ratio = run.iteration_s / run.expected_s if run.iteration_s and run.expected_s else None
    return {
        "job": job,
        "run": run,
        "ended": job.state in ENDED,
        "ratio": ratio,
        "is_slow": ratio is not None and ratio >= 1.2,
        "elapsed_s": elapsed_s(job, timezone.now()),
        "open_incidents": list(_alarming(job.verdicts.filter(state="open")).order_by("-opened_at")[:5]),
        "waiting": job.reconfigurations.filter(state=ReconfigurationState.PROPOSED).first(),
        "may_act": may(request, job.team_id, Permission.SUBMIT),
        "may_cancel": job.state in (JobState.QUEUED, JobState.RUNNING) and job.cancel_asked_at is None,
        "may_resume": job.state in (JobState.FAILED, JobState.CANCELLED),
    }


def _alarming(rows: QuerySet[Verdict]) -> QuerySet[Verdict]:
    """Leave out what says only that nothing can be said: it stands in the list of incidents."""
    return rows.exclude(kind=VerdictKind.INSUFFICIENT_EVIDENCE)


def _recovery(request: HttpRequest, job: Job) -> dict[str, Any]:
    run = job.training
    plans = job.reconfigurations.select_related("requester", "approver").order_by("-created_at", "-id")
    incidents = job.verdicts.select_related("device__node").order_by("-opened_at", "-id")
    slow = slowdowns_of(run)
    return {
        "job": job,
        "run": run,
        "layout": layout_of(run),
        "slow": sorted(
            ((rank, factor) for rank, factor in slow.items() if factor >= 1.2), key=lambda r: -r[1]
        ),
        "plans": plans[:ROWS],
        "plan_count": plans.count(),
        "incidents": incidents[:ROWS],
        "incident_count": incidents.count(),
        "injections": run.injections.order_by("-created_at")[:ROWS],
        "ranks": living_ranks(run.layout or {}),
        "faults": [(mode.value, *words) for mode, words in FAULTS.items()],
        "may_inject": may(request, job.team_id, Permission.OPERATE) and job.state == JobState.RUNNING,
    }
