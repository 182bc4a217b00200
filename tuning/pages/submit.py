"""Submitting a study: a form made from the workload, checked by the service that will take it."""

import shlex
from typing import Any
from uuid import UUID

import yaml
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from cluster.core.roles import Permission
from cluster.models import Team, User
from cluster.queries import teams_where
from jobs.core.body import parse_body
from jobs.core.errors import InvalidSpec
from jobs.models import Job
from jobs.queries import jobs_for
from jobs.services.submission import check_spec, submit_job
from journal.core.ids import new_id
from tuning.core.space.parse import KINDS
from tuning.core.study.spec import StudySpec
from tuning.models import Workload
from tuning.pages.form import (
    Values,
    anchor,
    body_of,
    declared,
    job_values,
    placed,
    shown_fields,
    space_rows,
    workload_values,
)
from tuning.queries.cost import Cost, estimate

SAME_FORM_S = 3600


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def new_study(request: HttpRequest) -> HttpResponse:
    """Show the form, empty or filled from an earlier study (`?from=`); take it and go to the new study."""
    teams = _teams(request)
    workload, values, origin = _start(request)
    if workload is None:
        return render(request, "tuning/submit_nothing.html", {"section": "studies"})
    errors: dict[str, str] = {}
    if request.method == "POST":
        values = workload_values(workload) | _typed(request)
        outcome = _submit(request, values, workload, teams, origin)
        if isinstance(outcome, Job):
            return redirect("study", job_id=outcome.pk)
        errors = outcome
    values["team"] = values.get("team") or (teams[0].slug if len(teams) == 1 else "")
    context = _form(workload, values, errors) | _review(values, workload, errors)
    context |= {
        "section": "studies",
        "teams": teams,
        "origin": origin,
        "once": request.POST.get("once") or new_id(),
    }
    context["workloads"] = Workload.objects.filter(is_available=True)
    return render(request, "tuning/submit.html", context, status=422 if errors else 200)


@login_required
@require_POST
def check_study(request: HttpRequest) -> HttpResponse:
    """Answer htmx with what the service says of the form as it stands, and what the study would cost."""
    teams = _teams(request)
    workload, _, _ = _start(request)
    if workload is None:
        return HttpResponse(status=204)
    values = workload_values(workload) | _typed(request)
    errors = _faults(values, workload, teams)
    return render(
        request,
        "tuning/submit_review.html",
        _form(workload, values, errors) | _review(values, workload, errors),
    )


def _teams(request: HttpRequest) -> list[Team]:
    teams = list(teams_where(request.user, Permission.SUBMIT))
    if not teams:
        raise PermissionDenied("Submitting needs the role of a researcher in some team.")
    return teams


def _start(request: HttpRequest) -> tuple[Workload | None, Values, Job | None]:
    available = Workload.objects.filter(is_available=True)
    origin = _origin(request)
    name = (
        request.POST.get("workload")
        or request.GET.get("workload")
        or (origin.study.workload if origin else "")
    )
    workload = available.filter(pk=name).first() or available.first()
    if workload is None:
        return None, {}, None
    if origin and origin.study.workload == workload.name:
        return workload, job_values(origin, workload), origin
    return workload, workload_values(workload), None


def _origin(request: HttpRequest) -> Job | None:
    text = request.POST.get("rerun_of") or request.GET.get("from") or ""
    try:
        return jobs_for(request.user).filter(study__isnull=False, pk=UUID(text)).first()
    except ValueError:
        return None


def _typed(request: HttpRequest) -> Values:
    return {key: value for key, value in request.POST.items() if isinstance(value, str)}


def _faults(values: Values, workload: Workload, teams: list[Team]) -> dict[str, str]:
    faults = []
    try:
        body = parse_body(body_of(values, workload))
        check_spec(body)
    except InvalidSpec as error:
        faults = error.faults
    if _team(values, teams) is None:
        faults.append(("/team", "choose one of your teams"))
    return placed(faults, workload)


def _team(values: Values, teams: list[Team]) -> Team | None:
    if len(teams) == 1 and not values.get("team"):
        return teams[0]
    return next((team for team in teams if team.slug == values.get("team")), None)


def _submit(
    request: HttpRequest, values: Values, workload: Workload, teams: list[Team], origin: Job | None
) -> Job | dict[str, str]:
    errors = _faults(values, workload, teams)
    team = _team(values, teams)
    if errors or team is None or not isinstance(request.user, User):
        return errors
    # A second click on the same form finds the study of the first.
    key = f"submitted:{request.user.pk}:{request.POST.get('once', '')[:40]}"
    job = Job.objects.filter(pk=cache.get(key)).first()
    if job is None:
        body = parse_body(body_of(values, workload))
        actor = request.user.get_username()
        job = submit_job(
            body=body, team=team, owner=request.user, actor=actor, rerun_of=origin.pk if origin else None
        )
        cache.set(key, job.pk, SAME_FORM_S)
    return job


def _form(workload: Workload, values: Values, errors: dict[str, str]) -> dict[str, Any]:
    rows = space_rows(workload, values)
    fields = shown_fields(workload, values)
    names = [f.name for group in fields.values() for f in group] + ["name", "team", "bound"]
    names += [f"parameters.{name}" for name in declared(workload)]
    names += [f"space.{row.index}.{part}" for row in rows for part in ("type", "low", "high", "q", "values")]
    return {
        "workload": workload,
        "values": values,
        "fields": fields,
        "space": rows,
        "kinds": list(KINDS),
        "parameters": [
            (name, entry, values.get(f"parameters.{name}", "")) for name, entry in declared(workload).items()
        ],
        "errors": errors,
        "messages_of": [(anchor(name), errors.get(name, "")) for name in names],
    }


def _review(values: Values, workload: Workload, errors: dict[str, str]) -> dict[str, Any]:
    body = body_of(values, workload)
    return {"cost": _cost(body, workload), "code": code_of(body), "fault_count": len(errors)}


def _cost(body: dict[str, Any], workload: Workload) -> Cost | None:
    try:
        spec = StudySpec.from_dict(check_spec(parse_body(body)))
    except InvalidSpec:
        return None
    return estimate(spec, spec.epochs or int(workload.description["epochs"]))


def code_of(body: dict[str, Any]) -> dict[str, str]:
    """Return a body as it would be sent by other means: YAML, curl and Python."""
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, default_flow_style=None, width=96)
    url = settings.PUBLIC_URL
    return {
        "yaml": text,
        "curl": f'curl {url}/api/v1/jobs \\\n  -H "Authorization: Bearer $FOREBAY_TOKEN" \\\n'
        f"  -H 'Content-Type: application/yaml' \\\n  --data-binary {shlex.quote(text)}",
        "python": "import os\n\nimport forebay\n\n"
        f'client = forebay.Client("{url}", os.environ["FOREBAY_TOKEN"])\n'
        f"job = client.submit({_python(body)})\njob.wait()",
    }


def _python(value: Any, depth: int = 0) -> str:
    if isinstance(value, dict) and value and depth < 2:
        pad = "    " * (depth + 1)
        inner = "".join(f"{pad}{key!r}: {_python(item, depth + 1)},\n" for key, item in value.items())
        return "{\n" + inner + "    " * depth + "}"
    return repr(value)
