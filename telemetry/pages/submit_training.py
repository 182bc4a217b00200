"""Submitting a training job: a form made from the spec's fields, checked by the service that will take it."""

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
from jobs.core.training import ModelShape
from jobs.core.training.layout import on_ranks
from jobs.models import Job
from jobs.services.submission import check_spec, submit_job
from jobs.services.training import cluster_facts
from journal.core.ids import new_id
from telemetry.core.layouts import layout_view
from telemetry.pages.training_form import (
    TABLE,
    Values,
    anchor,
    body_of,
    placed,
    shown_fields,
    untouched,
    values_of,
)
from telemetry.queries.training import training_jobs

SAME_FORM_S = 3600


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def new_training(request: HttpRequest) -> HttpResponse:
    """Show the form, empty or filled from an earlier job (`?from=`); take it and go to the new job."""
    teams, origin = _teams(request), _origin(request)
    values = (
        values_of(origin.spec) | {"name": origin.name, "team": origin.team.slug} if origin else untouched()
    )
    errors: dict[str, str] = {}
    if request.method == "POST":
        values = untouched() | _typed(request)
        outcome = _submit(request, values, teams, origin)
        if isinstance(outcome, Job):
            return redirect("training-job", job_id=outcome.pk)
        errors = outcome
    values["team"] = values.get("team") or (teams[0].slug if len(teams) == 1 else "")
    context = _form(values, errors) | _review(values, errors)
    context |= {
        "section": "training",
        "teams": teams,
        "origin": origin,
        "once": request.POST.get("once") or new_id(),
        "cluster": cluster_facts(),
    }
    return render(request, "telemetry/training_submit.html", context, status=422 if errors else 200)


@login_required
@require_POST
def check_training(request: HttpRequest) -> HttpResponse:
    """Answer htmx with what the service says of the form as it stands."""
    teams = _teams(request)
    values = untouched() | _typed(request)
    errors = _faults(values, teams)
    return render(request, "telemetry/training_review.html", _form(values, errors) | _review(values, errors))


def _teams(request: HttpRequest) -> list[Team]:
    teams = list(teams_where(request.user, Permission.SUBMIT))
    if not teams:
        raise PermissionDenied("Submitting needs the role of a researcher in some team.")
    return teams


def _origin(request: HttpRequest) -> Job | None:
    text = request.POST.get("rerun_of") or request.GET.get("from") or ""
    try:
        return training_jobs(request.user).filter(pk=UUID(text)).first()
    except ValueError:
        return None


def _typed(request: HttpRequest) -> Values:
    return {key: value for key, value in request.POST.items() if isinstance(value, str)}


def _faults(values: Values, teams: list[Team]) -> dict[str, str]:
    faults = []
    try:
        check_spec(parse_body(body_of(values)))
    except InvalidSpec as error:
        faults = error.faults
    if _team(values, teams) is None:
        faults.append(("/team", "choose one of your teams"))
    return placed(faults)


def _team(values: Values, teams: list[Team]) -> Team | None:
    if len(teams) == 1 and not values.get("team"):
        return teams[0]
    return next((team for team in teams if team.slug == values.get("team")), None)


def _submit(
    request: HttpRequest, values: Values, teams: list[Team], origin: Job | None
) -> Job | dict[str, str]:
    errors, team = _faults(values, teams), _team(values, teams)
    if errors or team is None or not isinstance(request.user, User):
        return errors
    # A second click on the same form finds the job of the first.
    key = f"submitted:{request.user.pk}:{request.POST.get('once', '')[:40]}"
    job = Job.objects.filter(pk=cache.get(key)).first()
    if job is None:
        try:
            job = submit_job(
                body=parse_body(body_of(values)),
                team=team,
                owner=request.user,
                actor=request.user.get_username(),
                rerun_of=origin.pk if origin else None,
            )
        except InvalidSpec as error:
            return placed(error.faults)
        cache.set(key, job.pk, SAME_FORM_S)
    return job


def _form(values: Values, errors: dict[str, str]) -> dict[str, Any]:
    names = [*TABLE, "name", "team", "layout"]
    return {
        "values": values,
        "fields": shown_fields(values),
        "errors": errors,
        "messages_of": [(anchor(name), errors.get(name, "")) for name in names],
    }


def _review(values: Values, errors: dict[str, str]) -> dict[str, Any]:
    body = body_of(values)
    return {"code": code_of(body), "fault_count": len(errors), **_checked(body)}


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    """Return what the complete spec means: layout, size of the model, memory of the fullest rank."""
    try:
        spec = check_spec(parse_body(body))
    except InvalidSpec:
        return {"checked": None}
    shape = ModelShape(**spec["parameters"])
    return {
        "checked": spec,
        "layout": layout_view(on_ranks(spec["layout"])),
        "parameters": sum(map(shape.layer_parameters, range(shape.layers))),
        "memory_bytes": fullest(spec["layout"], shape),
    }


def fullest(layout: dict[str, Any], shape: ModelShape) -> int:
    """Return what the fullest rank of a spec's layout needs, in bytes (estimated)."""
    most = 0
    for replica in layout["replicas"]:
        first = 0
        for place, stage in enumerate(replica["stages"]):
            in_flight = len(replica["stages"]) - place
            layers = range(first, first + stage["layers"])
            need = sum(shape.layer_bytes(layer, in_flight) for layer in layers) // stage["tensor_parallel"]
            most, first = max(most, need), first + stage["layers"]
    return most


def code_of(body: dict[str, Any]) -> dict[str, str]:
    """Return a body as it would be sent by other means: YAML, curl and Python."""
    text = _yaml(body)
    url = settings.PUBLIC_URL
    return {
        "yaml": text,
        "curl": f'curl {url}/api/v1/jobs \\\n  -H "Authorization: Bearer $FOREBAY_TOKEN" \\\n'
        f"  -H 'Content-Type: application/yaml' \\\n  --data-binary {shlex.quote(text)}",
        "python": "import os\n\nimport forebay\n\n"
        f'client = forebay.Client("{url}", os.environ["FOREBAY_TOKEN"])\n'
        f'job = client.submit("training.yaml")  # the YAML beside\njob.wait()',
    }


class _Plain(yaml.SafeDumper):
    """Writes a repeated part out instead of referring to it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(body: dict[str, Any]) -> str:
    return yaml.dump(
        body, Dumper=_Plain, sort_keys=False, allow_unicode=True, default_flow_style=None, width=96
    )
