"""Every training job its reader may see, and the way from any job to its page."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.http import require_safe

from cluster.core.keyset import InvalidQuery
from cluster.core.roles import Permission
from cluster.queries import teams_of, teams_where
from jobs.core.states import LOOK, JobKind, JobState
from jobs.queries import jobs_for
from journal.queries import window_of
from telemetry.queries.training import training_page

FILTERS = ("q", "state", "team", "owner", "attention")
ATTENTION = {"incident": "with an open incident", "approval": "waiting for approval"}
MOST_STREAMS = 8
# kind -> name of its page's address
PAGES = {JobKind.STUDY: "study", JobKind.TRAINING: "training-job", JobKind.OVERLAP: "overlap-job"}


@login_required
@require_safe
def training_jobs(request: HttpRequest) -> HttpResponse:
    """Show the training jobs that pass the filters in the address; to htmx, only the table."""
    teams = list(teams_of(request.user))
    # Sequence numbers are read before the rows: an event in between is seen twice rather than never.
    streams = [(f"team:{t.pk}", window_of(f"team:{t.pk}").last_seq) for t in teams[:MOST_STREAMS]]
    filters = {key: request.GET[key] for key in FILTERS if request.GET.get(key)}
    if filters.get("state") not in {None, *JobState}:
        filters.pop("state")
    try:
        page = training_page(request.user, filters, cursor=request.GET.get("cursor"))
    except InvalidQuery:
        page = training_page(request.user, filters)
    context = {
        "section": "training",
        "page": page,
        "filters": filters,
        "states": [(s.value, LOOK[s][0], page.by_state[s.value]) for s in JobState],
        "all_states": sum(page.by_state.values()),
        "attention": ATTENTION.items(),
        "teams": teams,
        "streams": streams,
        "may_submit": teams_where(request.user, Permission.SUBMIT).exists(),
    }
    part = request.headers.get("HX-Target") == "training-jobs"
    return render(
        request, "telemetry/training_table.html" if part else "telemetry/training_list.html", context
    )


@login_required
@require_safe
def job(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Lead from a job's id to the page of its kind."""
    found = jobs_for(request.user).filter(pk=job_id).first()
    name = PAGES.get(JobKind(found.kind)) if found else None
    if found is None or name is None:
        raise Http404("There is no page of such a job, or it belongs to a team you are not in.")
    try:
        reverse(name, args=[found.pk])
    except NoReverseMatch:
        raise Http404(f"Jobs of kind {found.kind} have no page yet.") from None
    return redirect(name, found.pk)
