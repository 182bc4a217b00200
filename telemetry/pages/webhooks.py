"""The page of webhooks: where a team's alerts are sent, made and removed by its admins."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from cluster.core.roles import Permission
from cluster.queries import teams_of, teams_where
from telemetry.core.errors import InvalidWebhook
from telemetry.core.webhooks.alerts import KINDS, USUAL
from telemetry.models import Webhook, WebhookDelivery
from telemetry.pages.access import demand, person
from telemetry.services.webhooks import create_webhook, delete_webhook, send_again, send_test

ROWS = 30


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def webhooks(request: HttpRequest) -> HttpResponse:
    """Show the webhooks of the teams one administers; make one and show its secret this once."""
    teams = list(teams_where(request.user, Permission.ADMINISTER))
    if not teams:
        raise PermissionDenied("Webhooks are for admins of a team.")
    made, errors = None, {}
    if request.method == "POST":
        slug = request.POST.get("team", "") or (teams[0].slug if len(teams) == 1 else "")
        team = next((team for team in teams if team.slug == slug), None)
        try:
            if team is None:
                raise InvalidWebhook([("/team", "choose one of your teams")])
            made = create_webhook(
                team=team,
                user=person(request),
                actor=request.user.get_username(),
                url=request.POST.get("url", "").strip(),
                kinds=request.POST.getlist("kinds"),
            )
        except InvalidWebhook as problem:
            errors = {pointer.strip("/"): sentence for pointer, sentence in problem.faults}
    rows = Webhook.objects.filter(team__in=teams).select_related("team", "created_by")
    context = {
        "section": "webhooks",
        "webhooks": rows,
        "deliveries": WebhookDelivery.objects.filter(webhook__in=rows).select_related("webhook__team")[:ROWS],
        "teams": teams,
        "made": made,
        "errors": errors,
        "typed": request.POST if errors else None,
        "chosen": request.POST.getlist("kinds") if errors else list(USUAL),
        "kinds": KINDS.items(),
    }
    part = request.headers.get("HX-Target") == "deliveries"
    name = "telemetry/deliveries.html" if part else "telemetry/webhooks.html"
    return render(request, name, context, status=422 if errors else 200)


@login_required
@require_POST
def remove(request: HttpRequest, webhook_id: UUID) -> HttpResponse:
    """Delete a webhook."""
    delete_webhook(webhook_id=_find(request, webhook_id).pk, actor=request.user.get_username())
    messages.success(request, "Deleted. Nothing is sent there any more.")
    return redirect("webhooks")


@login_required
@require_POST
def test(request: HttpRequest, webhook_id: UUID) -> HttpResponse:
    """Send a test message."""
    send_test(webhook_id=_find(request, webhook_id).pk, actor=request.user.get_username())
    messages.success(request, "A test message is on its way; what became of it stands below.")
    return redirect("webhooks")


@login_required
@require_POST
def redeliver(request: HttpRequest, webhook_id: UUID, delivery_id: UUID) -> HttpResponse:
    """Send a message once more."""
    rows = WebhookDelivery.objects.filter(webhook=_find(request, webhook_id), pk=delivery_id)
    if not rows.exists():
        raise Http404("There is no such message.")
    send_again(delivery_id=delivery_id)
    messages.success(request, "It is sent once more, with the same id.")
    return redirect("webhooks")


def _find(request: HttpRequest, webhook_id: UUID) -> Webhook:
    seen: QuerySet[Webhook] = Webhook.objects.filter(team__in=teams_of(request.user))
    row = seen.filter(pk=webhook_id).first()
    if row is None:
        raise Http404("There is no such webhook, or it belongs to a team you are not in.")
    demand(request, row.team_id, Permission.ADMINISTER)
    return row
