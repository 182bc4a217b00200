"""The first page: every study its reader may see."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from cluster.core.keyset import InvalidQuery
from cluster.core.roles import Permission
from cluster.queries import teams_of, teams_where
from jobs.core.states import LOOK, JobState
from journal.queries import window_of
from tuning.models import Workload
from tuning.queries.overview import studies_page

FILTERS = ("q", "state", "team", "owner", "workload")
MOST_STREAMS = 8
SAMPLE = "digits-mlp"


@login_required
@require_safe
def studies(request: HttpRequest) -> HttpResponse:
    """Show the studies that pass the filters in the address; to htmx, only the table."""
    teams = list(teams_of(request.user))
    # Sequence numbers are read before the rows: an event in between is seen twice rather than never.
    streams = [(f"team:{t.pk}", window_of(f"team:{t.pk}").last_seq) for t in teams[:MOST_STREAMS]]
    filters = {key: request.GET[key] for key in FILTERS if request.GET.get(key)}
    if filters.get("state") not in {None, *JobState}:
        filters.pop("state")
    try:
        page = studies_page(request.user, filters, cursor=request.GET.get("cursor"))
    except InvalidQuery:
        page = studies_page(request.user, filters)
    context = {
        "section": "studies",
        "page": page,
        "filters": filters,
        "states": [(s.value, LOOK[s][0], page.by_state[s.value]) for s in JobState],
        "all_states": sum(page.by_state.values()),
        "teams": teams,
        "streams": streams,
        "may_submit": teams_where(request.user, Permission.SUBMIT).exists(),
        "sample": Workload.objects.filter(pk=SAMPLE, is_available=True).first(),
    }
    part = request.headers.get("HX-Target") == "studies"
    return render(request, "tuning/studies_table.html" if part else "tuning/studies.html", context)
