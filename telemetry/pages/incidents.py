"""Incidents and the decision on the plans that answer them."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from cluster.core.keyset import InvalidQuery
from cluster.core.roles import Permission
from cluster.queries import teams_of
from jobs.core.errors import JobError
from jobs.core.states import ReconfigurationState
from jobs.models import Reconfiguration
from jobs.services import reconfigurations
from journal.queries import window_of
from telemetry.core.evidence import detection_words, evidence_rows, meaning
from telemetry.core.plans import candidates
from telemetry.core.states import VerdictState
from telemetry.models import Verdict
from telemetry.pages.access import demand, may, person, reconfiguration_for, verdict_for
from telemetry.queries.incidents import incident_page, moments_of, plans_of, story_of, waiting_for
from telemetry.queries.training import slowdowns_of

MOST_STREAMS = 8
FIELDS = (
    "kind", "before", "plan", "alternatives", "baseline_iteration_s", "predicted_iteration_s",
    "predicted_pause_s", "moved_bytes", "memory", "needs_checkpoint", "facts",
)  # fmt: skip
DECISIONS = {
    "approve": "Approved. The job takes the new layout at the end of its iteration.",
    "reject": "Rejected. The job stays as it is.",
}


@login_required
@require_safe
def incidents(request: HttpRequest) -> HttpResponse:
    """Show the incidents of one's teams, newest first; to htmx, only the table."""
    streams = team_streams(request)
    filters = {key: request.GET[key] for key in ("state", "kind") if request.GET.get(key)}
    try:
        page = incident_page(request.user, filters, cursor=request.GET.get("cursor"))
    except InvalidQuery:
        page = incident_page(request.user, filters)
    context = {"section": "incidents", "page": page, "filters": filters, "streams": streams,
               "states": [(s.value, page.by_state[s.value]) for s in VerdictState]}  # fmt: skip
    part = request.headers.get("HX-Target") == "incidents"
    return render(
        request, "telemetry/incident_table.html" if part else "telemetry/incident_list.html", context
    )


@login_required
@require_safe
def incident(request: HttpRequest, verdict_id: UUID) -> HttpResponse:
    """Show one incident: verdict, evidence, story, plans; to htmx, without the raw series."""
    verdict = verdict_for(request, verdict_id)
    seq = window_of(verdict.job.stream).last_seq
    plans = plans_of(verdict)
    first = verdict.first_sample_at
    took = (verdict.opened_at - first).total_seconds() if first else None
    context = {
        "section": "incidents",
        "seq": seq,
        "job": verdict.job,
        "verdict": verdict,
        "meaning": meaning(verdict.kind),
        "evidence": evidence_rows(verdict.evidence),
        "detection": detection_words(verdict.first_step, verdict.detected_step, took),
        "burn_ins": list(verdict.burn_ins.all()),
        "story": story_of(verdict, plans),
        "plans": [_plan(request, plan) for plan in plans],
    }
    part = request.headers.get("HX-Target") == "incident"
    return render(request, "telemetry/incident_body.html" if part else "telemetry/incident.html", context)


@login_required
@require_safe
def reconfiguration(request: HttpRequest, reconfiguration_id: UUID) -> HttpResponse:
    """Show one plan, also one that answers to no verdict; to htmx, without the frame."""
    row = reconfiguration_for(request, reconfiguration_id)
    seq = window_of(row.job.stream).last_seq
    verdict = Verdict.objects.filter(pk=row.verdict_id, job_id=row.job_id).first() if row.verdict_id else None
    context = {
        "section": "approvals",
        "seq": seq,
        "job": row.job,
        "verdict": verdict,
        "row": row,
        "story": moments_of(row),
        "plans": [_plan(request, row)],
    }
    part = request.headers.get("HX-Target") == "incident"
    name = "telemetry/reconfiguration_body.html" if part else "telemetry/reconfiguration.html"
    return render(request, name, context)


@login_required
@require_safe
def approvals(request: HttpRequest) -> HttpResponse:
    """Show the plans that wait for one's decision, those that wait for others', and the latest decisions."""
    streams = team_streams(request)
    mine = waiting_for(request.user)
    teams = teams_of(request.user)
    rows = Reconfiguration.objects.filter(job__team__in=teams).select_related(
        "job__team", "requester", "approver"
    )
    waiting = rows.filter(state=ReconfigurationState.PROPOSED)
    context = {
        "section": "approvals",
        "streams": streams,
        "waiting": mine.order_by("expires_at"),
        "others": waiting.exclude(pk__in=mine.values("pk")).order_by("expires_at")[:50],
        "decided": rows.exclude(state=ReconfigurationState.PROPOSED).order_by("-created_at", "-id")[:30],
        "now": timezone.now(),
    }
    part = request.headers.get("HX-Target") == "approvals"
    return render(request, "telemetry/approvals_body.html" if part else "telemetry/approvals.html", context)


@login_required
@require_safe
def approval_count(request: HttpRequest) -> HttpResponse:
    """Return how many plans wait for one's decision, for the navigation."""
    return render(request, "telemetry/approval_count.html", {"waiting": waiting_for(request.user).count()})


@login_required
@require_POST
def decide(request: HttpRequest, reconfiguration_id: UUID, decision: str) -> HttpResponse:
    """Approve or reject a plan in the version that was seen; the service has the last word."""
    row = reconfiguration_for(request, reconfiguration_id)
    if decision not in DECISIONS:
        raise Http404(f"There is no decision {decision}.")
    demand(request, row.job.team_id, Permission.ADMINISTER)
    version = request.POST.get("version", "")
    words: dict[str, Any] = {"comment": request.POST.get("comment", "").replace("\0", "")}
    if decision == "approve":
        words["break_glass"] = request.POST.get("break_glass", "").replace("\0", "")
    try:
        if not (version.isdecimal() and len(version) < 10):
            raise JobError("the page did not say which version of the plan was seen")
        getattr(reconfigurations, decision)(
            reconfiguration_id=row.pk,
            approver=person(request),
            actor=request.user.get_username(),
            seen_version=int(version),
            **words,
        )
        messages.success(request, DECISIONS[decision])
    except JobError as error:
        messages.error(request, f"Not done: {error}.")
    onward = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(onward, {request.get_host()}, require_https=request.is_secure()):
        return redirect(onward)
    return redirect("reconfiguration", row.pk)


def team_streams(request: HttpRequest) -> list[tuple[str, int]]:
    """Return the streams of one's teams and where they stand, to be read before the rows."""
    teams = list(teams_of(request.user)[:MOST_STREAMS])
    return [(f"team:{team.pk}", window_of(f"team:{team.pk}").last_seq) for team in teams]


def _plan(request: HttpRequest, row: Reconfiguration) -> dict[str, Any]:
    """Return a plan with its candidates and what its reader may do about it."""
    run = row.job.training
    fields = {name: getattr(row, name) for name in FIELDS}
    slow = {int(rank): 1 / speed for rank, speed in (row.facts.get("speeds") or {}).items() if speed}
    found = candidates(fields, run.devices or [], slow or slowdowns_of(run))
    is_open = row.state == ReconfigurationState.PROPOSED and row.expires_at > timezone.now()
    after = row.outcome.get("iteration_s")
    return {
        "row": row,
        "candidates": found,
        "keep": found[1],
        "chosen": found[0],
        "is_open": is_open,
        "is_late": row.state == ReconfigurationState.PROPOSED and not is_open,
        "may_decide": may(request, row.job.team_id, Permission.ADMINISTER),
        "is_own": row.requester_id == request.user.pk,
        "phases": row.outcome.get("phases") or {},
        "measured_s": after,
        "off": after / row.predicted_iteration_s - 1 if after and row.predicted_iteration_s else None,
    }
