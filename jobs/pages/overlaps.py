"""Pages of overlap jobs: the list, the form, one job with its what-if questions."""

import json
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from cluster.core.roles import Permission
from cluster.models import User
from cluster.queries import teams_where
from jobs.core.body import parse_body
from jobs.core.errors import InvalidSpec, JobError
from jobs.core.overlap.builtin import BUILT_IN_PROGRAMS, SIZE_LIMITS
from jobs.core.overlap.figures import memory_figure, streams_figure
from jobs.core.overlap.graph import given_order
from jobs.core.overlap.planner import POLICIES
from jobs.core.overlap.questions import Answer
from jobs.core.states import ENDED, JobKind, JobState
from jobs.models import Job
from jobs.pages.overlap_results import (
    AS_PLANNED,
    ASKED_POLICIES,
    BANDWIDTHS,
    SLOWDOWNS,
    answer,
    clusters_offered,
    demand,
    may,
    overlap_for,
    question_of,
    result_of,
)
from jobs.queries import jobs_for
from jobs.services.lifecycle import cancel_job, resume_job
from jobs.services.submission import submit_job
from journal.queries import window_of

SHOWN = 100
_MIB = 1 << 20
_MS = 1e3


@login_required
@require_safe
def overlaps(request: HttpRequest) -> HttpResponse:
    """List the newest overlap jobs."""
    rows = jobs_for(request.user).filter(kind=JobKind.OVERLAP)[:SHOWN]
    context = {
        "section": "overlaps",
        "rows": rows,
        "may_submit": teams_where(request.user, Permission.SUBMIT).exists(),
    }
    return render(request, "jobs/overlaps.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def new_overlap(request: HttpRequest) -> HttpResponse:
    """Show the form; take it and go to the new job. `?from=` names the training job that is asked about."""
    teams = list(teams_where(request.user, Permission.SUBMIT))
    if not teams or not isinstance(request.user, User):
        raise PermissionDenied("Submitting needs the role of a researcher in some team.")
    origin = _origin(request)
    values = {"program": "tp-transformer", "tiles": "auto", "cluster": "a100x8-hdr", "policy": "bucketed"}
    values |= {"team": origin.team.slug if origin else teams[0].slug}
    if origin:
        values |= _like(origin)
    errors: dict[str, str] = {}
    if request.method == "POST":
        values |= {key: value for key, value in request.POST.items() if isinstance(value, str)}
        try:
            team = next((team for team in teams if team.slug == values["team"]), None)
            if team is None:
                raise InvalidSpec([("/team", "choose one of your teams")])
            body = parse_body({"kind": "overlap", "spec": _spec(values)})
            name = request.user.get_username()
            job = submit_job(body=body, team=team, owner=request.user, actor=name)
            return redirect("overlap", job_id=job.pk)
        except InvalidSpec as error:
            errors = {pointer.split("/")[-1]: rule for pointer, rule in error.faults}
    context = {
        "section": "overlaps",
        "teams": teams,
        "origin": origin,
        "sizes": [(name, values.get(f"size_{name}", "")) for name in SIZE_LIMITS],
        "sized": any(values.get(f"size_{name}") for name in SIZE_LIMITS),
        "values": values,
        "errors": errors,
        "programs": BUILT_IN_PROGRAMS,
        "clusters": clusters_offered(),
        "policies": POLICIES,
    }
    return render(request, "jobs/overlap_new.html", context, status=422 if errors else 200)


def _origin(request: HttpRequest) -> Job | None:
    try:
        wanted = UUID(request.GET.get("from", ""))
    except ValueError:
        return None
    return jobs_for(request.user).filter(kind=JobKind.TRAINING, pk=wanted).first()


def _like(origin: Job) -> dict[str, str]:
    """The sizes of a training job's model: one micro-batch, a stage's layers, its tensor parallelism.

    Where it has none, two ranks, so that there is something to ask about.
    """
    model = origin.spec["parameters"]
    stage = origin.spec["layout"]["replicas"][0]["stages"][0]
    size = {
        "ranks": max(2, stage["tensor_parallel"]),
        "batch": max(1, model["microbatch_tokens"] // model["context"]),
        "tokens": model["context"],
        "width": model["width"],
        "heads": model["heads"],
        "hidden": 4 * model["width"],
        "layers": min(stage["layers"], SIZE_LIMITS["layers"]),
    }
    return {"cluster": "a100x8", **{f"size_{name}": str(value) for name, value in size.items()}}


def _spec(values: dict[str, str]) -> dict[str, Any]:
    """What was typed as a job's spec; numbers that are none stay texts, and the check names them."""
    spec: dict[str, Any] = {key: values.get(key, "").strip() for key in ("cluster", "policy")}
    spec["program"] = values.get("own_program", "").strip() or values.get("program", "")
    tiles = values.get("tiles", "").strip() or "auto"
    spec["tiles"] = int(tiles) if tiles.isdigit() and len(tiles) < 9 else tiles
    size = {name: text for name in SIZE_LIMITS if (text := values.get(f"size_{name}", "").strip())}
    if size:
        spec["size"] = {
            name: int(text) if text.isascii() and text.isdigit() and len(text) < 12 else text
            for name, text in size.items()
        }
    budget = values.get("memory_budget", "").strip()
    if budget:
        spec["memory_budget"] = _number(budget, _MIB)
    if slowdown := values.get("slowdown", "").strip():
        spec["slowdown"] = _number(slowdown, 1)
    return spec


def _number(text: str, unit: int) -> float | str:
    try:
        return float(text) * unit
    except ValueError:
        return text


@login_required
@require_safe
def overlap(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Show an overlap job; the address holds the assumptions of its what-if question."""
    job = overlap_for(request, job_id)
    seq = window_of(job.stream).last_seq
    context = {
        "section": "overlaps",
        "seq": seq,
        "job": job,
        "ended": job.state in ENDED,
        "may_act": may(request, job, Permission.SUBMIT),
        "may_cancel": job.state in (JobState.QUEUED, JobState.RUNNING) and job.cancel_asked_at is None,
        "may_resume": job.state in (JobState.FAILED, JobState.CANCELLED),
    }
    return render(request, "jobs/overlap.html", context | _result(request, job))


@login_required
@require_safe
def overlap_answer(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Return the figures and decisions for the assumptions in the address."""
    job = overlap_for(request, job_id)
    return render(request, "jobs/overlap_answer.html", {"job": job} | _result(request, job))


def _result(request: HttpRequest, job: Job) -> dict[str, Any]:
    document = result_of(job)
    if document is None:
        return {"result": None}
    question = question_of(request.GET, job, document)
    found = answer(job, document, question)
    budget = question.budget_bytes
    return {
        "result": document,
        "question": question,
        "budget_mib": f"{budget / _MIB:.6g}" if budget else "",
        "as_planned": question.policy == AS_PLANNED,
        "answer": found,
        "plan": found.document,
        "ms": _milliseconds(found),
        "policies_ms": [
            {**row, "ms": None if row["makespan"] is None else row["makespan"] * _MS}
            for row in document["policies"]
        ],
        "bound_ms": document["lower_bound"] * _MS,
        "gain": found.whole_timeline.makespan_s / found.document["makespan"] - 1
        if found.document["makespan"]
        else 0,
        "tiles_offered": sorted(document["works"]),
        "clusters": clusters_offered(),
        "bandwidths": BANDWIDTHS,
        "slowdowns": SLOWDOWNS,
        "asked_policies": ASKED_POLICIES,
        "query": request.GET.urlencode(),
    }


def _milliseconds(found: Answer) -> dict[str, float]:
    """The answer's times, in the unit in which a step is told."""
    names = ("makespan", "compute_idle", "exposed_comm", "lower_bound", "critical_path")
    whole = found.whole_timeline
    return {name: found.document[name] * _MS for name in names} | {
        "whole": whole.makespan_s * _MS,
        "whole_idle": whole.compute_idle_s * _MS,
    }


@login_required
@require_safe
def overlap_figure(request: HttpRequest, job_id: UUID, name: str) -> HttpResponse:
    """Return one chart as JSON: the streams before or after, or the memory."""
    job = overlap_for(request, job_id)
    if name not in ("before", "after", "memory"):
        raise Http404(f"An overlap job has no figure {name}.")
    document = result_of(job)
    if document is None:
        drawn: dict[str, Any] = {"empty": "There is no plan yet."}
    else:
        drawn = _drawn(answer(job, document, question_of(request.GET, job, document)), name)
    response = HttpResponse(json.dumps(drawn, separators=(",", ":"), allow_nan=False), "application/json")
    response["Cache-Control"] = "no-store"
    return response


def _drawn(found: Answer, name: str) -> dict[str, Any]:
    if name == "memory":
        return memory_figure(found)
    span_s = max(found.whole_timeline.makespan_s, found.timeline.makespan_s)
    if name == "before":
        return streams_figure(found.whole, given_order(found.whole), found.whole_timeline, span_s)
    return streams_figure(found.plan.graph, found.plan.chosen.steps, found.timeline, span_s)


@login_required
@require_POST
def cancel_overlap(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Cancel an overlap job."""
    return _act(request, job_id, cancel_job, "The job is being cancelled.")


@login_required
@require_POST
def resume_overlap(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Run a failed or cancelled overlap job again."""
    return _act(request, job_id, resume_job, "The job is queued again.")


def _act(request: HttpRequest, job_id: UUID, service: Any, done: str) -> HttpResponse:
    job = overlap_for(request, job_id)
    demand(request, job, Permission.SUBMIT)
    try:
        service(job_id=job.pk, actor=request.user.get_username())
        messages.success(request, done)
    except JobError as error:
        messages.error(request, f"Not done: {error}.")
    return redirect("overlap", job_id=job.pk)
