"""Quotas: what each team is guaranteed, and an editor that shows what a change would do before it is made."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from cluster.core.bodies import AMOUNTS, PreviewBody, QuotaBody, quota_rows, read_quota
from cluster.core.errors import ClusterError, InvalidBody, StaleRow
from cluster.core.roles import Permission, allows
from cluster.core.states import ClusterName
from cluster.models import Device, QueueEntry, Quota, Team
from cluster.pages.plays import play_row
from cluster.pages.queue import common
from cluster.queries import held_by_team, role_in, teams_of
from cluster.services.previews import preview
from cluster.services.quotas import overbooked, quota_of, set_quota

MOST_MOVED = 20


@login_required
@require_safe
def quotas(request: HttpRequest) -> HttpResponse:
    """Show the quotas of the person's teams."""
    teams = list(teams_of(request.user).order_by("slug"))
    kept = {quota.team_id: quota for quota in Quota.objects.filter(team__in=teams)}
    context = common(request, "quotas") | {
        "teams": [
            {
                "team": team,
                "rows": quota_rows(kept[team.pk].kinds) if team.pk in kept else [],
                "shares": kept[team.pk].shares if team.pk in kept else 1,
                "held": held_by_team(team.pk),
                "may_change": allows(role_in(request.user, team.pk), Permission.OPERATE),
            }
            for team in teams
        ],
        "warnings": overbooked(),
    }
    return render(request, "cluster/quotas.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def team_quota(request: HttpRequest, team_id: UUID) -> HttpResponse:
    """Show a team's quota; preview a change of it, or make it."""
    team = get_object_or_404(teams_of(request.user), pk=team_id)
    quota = quota_of(team.pk)
    if request.method == "POST":
        if not allows(role_in(request.user, team.pk), Permission.OPERATE):
            raise PermissionDenied("Only operators of the team may change its quota.")
        if request.POST.get("action") == "preview":
            return _preview(request, team)
        return _save(request, team, quota)
    return _form(request, team, quota, quota_rows(quota.kinds), {})


def _form(
    request: HttpRequest, team: Team, quota: Quota, rows: list[dict[str, Any]], errors: dict[str, str]
) -> HttpResponse:
    known = {row["kind"] for row in rows}
    present = Device.objects.order_by("kind").values_list("kind", flat=True).distinct()
    empty: dict[str, Any] = {"guaranteed": 0, "borrowable": None, "lendable": None}
    rows = rows + [{"kind": kind, **empty} for kind in present if kind not in known]
    context = common(request, "quotas") | {
        "team": team,
        "quota": quota,
        "rows": list(enumerate(rows)),
        "errors": errors,
        "held": {row["kind"]: row["devices"] for row in held_by_team(team.pk)},
        "may_change": allows(role_in(request.user, team.pk), Permission.OPERATE),
        "shares": request.POST.get("shares", quota.shares),
    }
    return render(request, "cluster/quota.html", context, status=400 if errors else 200)


def _typed(request: HttpRequest) -> dict[str, Any]:
    """Return the form as the body of the API; what is empty is no limit."""
    rows = []
    number = 0
    while f"kind.{number}" in request.POST:
        row: dict[str, Any] = {"kind": request.POST[f"kind.{number}"]}
        for name in AMOUNTS:
            text = request.POST.get(f"{name}.{number}", "").strip()
            row[name] = text if text else (0 if name == "guaranteed" else None)
        number += 1
        if row["guaranteed"] != 0 or row["borrowable"] is not None or row["lendable"] is not None:
            rows.append(row)
    shares = request.POST.get("shares", "1").strip()
    return {"shares": int(shares) if shares.isdigit() else shares, "quotas": rows}


def _save(request: HttpRequest, team: Team, quota: Quota) -> HttpResponse:
    typed = _typed(request)
    try:
        body = read_quota(typed)
        body = QuotaBody(body.kinds, body.shares, quota.parent.slug if quota.parent else None)
        seen = int(request.POST.get("version", "0") or 0)
        _, warnings = set_quota(
            team_id=team.pk, body=body, actor=request.user.get_username(), seen_version=seen
        )
    except InvalidBody as error:
        return _form(request, team, quota, typed["quotas"], dict(error.faults))
    except (StaleRow, ValueError):
        messages.error(request, "Not done: somebody else has changed this quota. Here is the present one.")
        return redirect("team-quota", team_id=team.pk)
    messages.success(request, f"The quota of {team.name} holds from now on.")
    for warning in warnings:
        messages.warning(request, f"{warning}.")
    return redirect("quotas")


def _preview(request: HttpRequest, team: Team) -> HttpResponse:
    context: dict[str, Any] = {"team": team}
    try:
        body = read_quota(_typed(request))
        name = ClusterName.REHEARSAL if request.POST.get("cluster") == "rehearsal" else ClusterName.REAL
        plays = preview(name, PreviewBody(quotas={team.slug: body}))
    except ClusterError as error:
        return render(request, "cluster/quota_preview.html", context | {"error": str(error)})
    names = {str(pk): label for pk, label in _labels(request).items()}
    moved = [{**row, "name": names[row["job"]]} for row in plays.moved[0] if row["job"] in names]
    context |= {
        "before": play_row("as it is", plays.before),
        "after": play_row("with this quota", plays.after[0]),
        "moved": [_move(row) for row in moved[:MOST_MOVED]],
        "left_out": plays.left_out,
    }
    return render(request, "cluster/quota_preview.html", context)


def _labels(request: HttpRequest) -> dict[UUID, str]:
    return dict(QueueEntry.objects.filter(team__in=teams_of(request.user)).values_list("job_id", "label"))


def _move(row: dict[str, Any]) -> dict[str, Any]:
    moves_s = row["after_s"] - row["before_s"]
    return {**row, "moves_s": moves_s, "earlier_s": -moves_s}
