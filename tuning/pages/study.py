"""The page of a study, its parts, and what can be done with it."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from cluster.core.keyset import InvalidQuery
from cluster.core.roles import Permission
from jobs.core.errors import JobError
from jobs.core.states import ENDED, JobState
from jobs.models import Job
from jobs.services.lifecycle import cancel_job, resume_job
from journal.queries import window_of
from tuning.models import Workload
from tuning.pages.access import demand, may, study_for
from tuning.queries.bubbles import lenders_of_study, waits_for_bubbles
from tuning.queries.columns import columns_of
from tuning.queries.decisions import decisions_of
from tuning.queries.failures import failures_of
from tuning.queries.filter_text import filters_of
from tuning.queries.ladder import ladder_of
from tuning.queries.overview import facts_of, summary_rows
from tuning.queries.spaces import space_of
from tuning.queries.transfer import fidelity_of, report_of
from tuning.queries.trials import trial_page
from tuning.services.transfer import ask_transfer_check

ROWS, MOST_ROWS = 100, 500
KEPT = ("q", "sort", "show", "from")


@login_required
@require_safe
def study(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Show a study; the address holds filter, order and columns of its trial table."""
    job = study_for(request, job_id)
    seq = window_of(job.stream).last_seq
    context = _head(request, job) | _trials(request, job) | _failures(job) | _trust(job)
    context |= {
        "section": "studies",
        "seq": seq,
        "spec": summary_rows(job),
        "space": space_of(job),
        "decisions": decisions_of(job),
    }
    return render(request, "tuning/study.html", context)


@login_required
@require_safe
def head(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return the head of a study's page."""
    return render(request, "tuning/study_head.html", _head(request, study_for(request, job_id)))


@login_required
@require_safe
def trials(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return the trial table, or with a cursor its next rows."""
    job = study_for(request, job_id)
    context = {"job": job, "study": job.study} | _trials(request, job)
    more = bool(request.GET.get("cursor"))
    response = render(request, "tuning/trial_rows.html" if more else "tuning/trial_table.html", context)
    if not more and request.headers.get("HX-Trigger") != "trial-table":
        query = kept(request).urlencode()
        response["HX-Replace-Url"] = reverse("study", args=[job.pk]) + (f"?{query}" if query else "")
    return response


@login_required
@require_safe
def failures(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return the failed trials by reason."""
    job = study_for(request, job_id)
    return render(request, "tuning/study_failures.html", {"job": job} | _failures(job))


@login_required
@require_safe
def decisions(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return what was decided on the study's devices."""
    job = study_for(request, job_id)
    return render(request, "tuning/study_decisions.html", {"job": job, "decisions": decisions_of(job)})


@login_required
@require_safe
def ladder(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return the table of rungs."""
    job = study_for(request, job_id)
    return render(request, "tuning/study_ladder.html", {"job": job, "study": job.study} | _trust(job))


@login_required
@require_safe
def transfer(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return what the transfer report says, with the button that asks for one."""
    job = study_for(request, job_id)
    return render(request, "tuning/study_transfer.html", _head(request, job) | _trust(job))


@login_required
@require_POST
def check_transfer(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Ask for a transfer report."""
    return _act(request, job_id, ask_transfer_check, "A transfer check runs on the next free device.")


@login_required
@require_POST
def cancel(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Cancel a study."""
    return _act(request, job_id, cancel_job, "The study is being cancelled; what is finished stays.")


@login_required
@require_POST
def resume(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Resume a failed or cancelled study."""
    return _act(request, job_id, resume_job, "The study is queued again and goes on where it stopped.")


def _act(request: HttpRequest, job_id: UUID, service: Any, done: str) -> HttpResponse:
    job = study_for(request, job_id)
    demand(request, job, Permission.SUBMIT)
    seen = request.POST.get("version", "")
    try:
        service(
            job_id=job.pk,
            actor=request.user.get_username(),
            seen_version=int(seen) if seen.isdigit() else None,
        )
        messages.success(request, done)
    except JobError as error:
        messages.error(request, f"Not done: {error}.")
    return redirect("study", job_id=job.pk)


def _head(request: HttpRequest, job: Job) -> dict[str, Any]:
    lenders, in_bubbles, elsewhere = lenders_of_study(job, request.user)
    return {
        "lenders": lenders,
        "in_bubbles": in_bubbles,
        "elsewhere": elsewhere,
        "waits_for_bubbles": waits_for_bubbles(job),
        "job": job,
        "study": job.study,
        "facts": facts_of(job),
        "ended": job.state in ENDED,
        "may_act": may(request, job, Permission.SUBMIT),
        "may_cancel": job.state in (JobState.QUEUED, JobState.RUNNING) and job.cancel_asked_at is None,
        "may_resume": job.state in (JobState.FAILED, JobState.CANCELLED),
        "has_workload": Workload.objects.filter(pk=job.study.workload, is_available=True).exists(),
    }


def _trust(job: Job) -> dict[str, Any]:
    """What the page says about rungs and about surrogates."""
    return {
        "rungs": ladder_of(job),
        "report": report_of(job),
        "fidelity": fidelity_of(job),
        "has_surrogates": int(job.spec.get("scaling") or 1) > 1,
    }


def _trials(request: HttpRequest, job: Job) -> dict[str, Any]:
    columns = columns_of(job)
    names = [column.name for column in columns]
    shown = [name for name in request.GET.getlist("show") if name in names]
    shown = shown or [column.name for column in columns if column.varies][:12] or names[:12]
    text, sort = request.GET.get("q", "").strip(), request.GET.get("sort") or "number"
    start, error = request.GET.get("from", "").strip().removeprefix("#"), ""
    asked = request.GET.get("rows", "")
    limit = min(max(int(asked) if asked.isdigit() else ROWS, ROWS), MOST_ROWS)
    try:
        filters = filters_of(text, names)
        if start:
            filters["number__gte"] = start
        page = trial_page(job, sort=sort, filters=filters, cursor=request.GET.get("cursor"), limit=limit)
    except InvalidQuery as problem:
        error = str(problem)
        page, sort, filters = trial_page(job, limit=limit), "number", {}
    query = kept(request)
    return {
        "columns": columns,
        "shown": shown,
        "rows": page.items,
        "best_number": job.study.best_trial,
        "next_cursor": page.next_cursor,
        "matching": page.total,
        "sort": sort,
        "filter_text": text,
        "filter_error": error,
        "from_number": start,
        "query": query.urlencode(),
        "export": exported(filters).urlencode(),
    }


def kept(request: HttpRequest) -> QueryDict:
    """Return the parts of the address that describe the trial table."""
    query = request.GET.copy()
    for key in list(query):
        if key not in KEPT or not query.get(key):
            del query[key]
    return query


def exported(filters: dict[str, str]) -> QueryDict:
    """Return the query that gives an export the rows on screen."""
    query = QueryDict(mutable=True)
    query.update(filters)
    return query


def _failures(job: Job) -> dict[str, Any]:
    groups, reasons = failures_of(job)
    return {"groups": groups, "reasons": reasons}
