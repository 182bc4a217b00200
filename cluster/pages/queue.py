"""The queue's page: who waits for what, why and until when; its policy; holding it."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from cluster.core.bodies import read_policy
from cluster.core.errors import ClusterError
from cluster.core.policies import LIVE, live_policy
from cluster.core.roles import Permission, allows
from cluster.core.states import ClusterName, EntryState
from cluster.models import Device, QueueEntry
from cluster.queries import QueueReader, highest_role, queue_entries, role_in, teams_of
from cluster.services.live_state import rules_of
from cluster.services.queue import coordinator_of, free_queue, hold_entry, hold_queue
from cluster.services.quotas import set_policy
from journal.queries import window_of

MOST_ROWS = 200
MOST_STREAMS = 8
REASON_LENGTH = 300
POLICIES = [(name, live_policy(name, 1).title) for name in LIVE]


def cluster_shown(request: HttpRequest) -> ClusterName:
    """Return which cluster a page is about: the one asked for, else the real one."""
    asked = request.GET.get("cluster") or request.POST.get("cluster")
    return ClusterName.REHEARSAL if asked == ClusterName.REHEARSAL else ClusterName.REAL


def common(request: HttpRequest, tab: str) -> dict[str, Any]:
    """Return what every page about the queue shows."""
    name = cluster_shown(request)
    simulated = name is ClusterName.REHEARSAL
    return {
        "section": "queue",
        "tab": tab,
        "cluster": name.value,
        "is_simulated": simulated,
        "has_rehearsal": Device.objects.filter(node__is_simulated=True).exists(),
        "may_operate": allows(highest_role(request.user), Permission.OPERATE),
    }


def require_operator(request: HttpRequest) -> None:
    """Refuse whoever operates nowhere."""
    if not allows(highest_role(request.user), Permission.OPERATE):
        raise PermissionDenied("Only operators may change the queue.")


@login_required
@require_safe
def queue(request: HttpRequest) -> HttpResponse:
    """Show the queue in its order, and what runs; to htmx, only the tables."""
    teams = list(teams_of(request.user))
    # Sequence numbers are read before the rows: an event in between is seen twice rather than never.
    streams = [(f"team:{t.pk}", window_of(f"team:{t.pk}").last_seq) for t in teams[:MOST_STREAMS]]
    context = common(request, "queue")
    entries = queue_entries([EntryState.WAITING, EntryState.RUNNING, EntryState.STOPPING])
    entries = entries.filter(is_simulated=context["is_simulated"]).order_by("rank", "job_id")
    if request.GET.get("mine"):
        entries = entries.filter(owner=request.user)  # type: ignore[misc]  # signed in
    reader = QueueReader({team.pk for team in teams})
    waiting = entries.filter(state=EntryState.WAITING)
    running = entries.exclude(state=EntryState.WAITING).order_by("started_at", "job_id")
    row = coordinator_of(ClusterName(context["cluster"]))
    context |= {
        "streams": streams,
        "waiting": [reader.row(entry) for entry in waiting[:MOST_ROWS]],
        "waiting_count": waiting.count(),
        "running": [reader.row(entry) for entry in running[:MOST_ROWS]],
        "running_count": running.count(),
        "coordinator": row,
        "rules": rules_of(row),
        "policies": POLICIES,
        "title_of_policy": dict(POLICIES).get(row.policy, row.policy),
        "mine": request.GET.get("mine", ""),
        "now": timezone.now(),
    }
    part = request.headers.get("HX-Target") == "queue"
    return render(request, "cluster/queue_body.html" if part else "cluster/queue.html", context)


@login_required
@require_POST
def hold(request: HttpRequest) -> HttpResponse:
    """Hold or release a whole queue."""
    require_operator(request)
    name, actor = cluster_shown(request), request.user.get_username()
    if request.POST.get("action") == "release":
        free_queue(name=name, actor=actor)
        messages.success(request, "The queue goes on.")
    else:
        reason = " ".join(request.POST.get("reason", "").split())[:REASON_LENGTH]
        if not reason:
            messages.error(request, "Not done: say why, so that those who wait know.")
            return _back(name)
        hold_queue(name=name, actor=actor, reason=reason)
        messages.success(request, "The queue is held: what runs goes on, nothing new starts.")
    return _back(name)


@login_required
@require_POST
def hold_job(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Hold or release one job of a team that the person operates."""
    entry = QueueEntry.objects.filter(pk=job_id, team__in=teams_of(request.user)).first()
    if entry is None or entry.state == EntryState.ENDED:
        raise Http404("There is no such job in the queue.")
    if not allows(role_in(request.user, entry.team_id), Permission.OPERATE):
        raise PermissionDenied("Only operators of the team may hold its jobs.")
    held = request.POST.get("action") != "release"
    hold_entry(job_id=job_id, actor=request.user.get_username(), reason="", held=held)
    messages.success(request, f"{entry.label} is {'held' if held else 'released'}.")
    return _back(ClusterName.REHEARSAL if entry.is_simulated else ClusterName.REAL)


@login_required
@require_POST
def policy(request: HttpRequest) -> HttpResponse:
    """Choose the policy of a queue."""
    require_operator(request)
    name = cluster_shown(request)
    before = coordinator_of(name)
    try:
        body = read_policy({"policy": request.POST.get("policy", ""), "rules": before.rules})
        set_policy(name=name, body=body, actor=request.user.get_username())
    except ClusterError as error:
        messages.error(request, f"Not done: {error}.")
    else:
        messages.success(request, f"The next decision is taken by {body.policy}.")
    return _back(name)


def _back(name: ClusterName) -> HttpResponse:
    address = redirect("queue")
    if name is ClusterName.REHEARSAL:
        address["Location"] += "?cluster=rehearsal"
    return address
