"""The page of failures: what broke, when, what it struck, and how often."""

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from cluster.core.keyset import InvalidQuery, decode_cursor, encode_cursor, read_time, read_uuid
from telemetry.queries.failure_counts import PERIODS, by_device, by_kind, failures_for, since

PAGE = 100
ORDER = "newest"


@login_required
@require_safe
def failures(request: HttpRequest) -> HttpResponse:
    """Show failure events, newest first: those of one's teams, and those of devices, which nobody owns."""
    rows = failures_for(request.user)
    if text := request.GET.get("q", "").replace("\0", "").strip():
        rows = rows.filter(Q(message__icontains=text) | Q(job__name__icontains=text))
    kinds = list(rows.order_by().values_list("kind").annotate(n=Count("id")).order_by("-n", "kind"))
    if kind := request.GET.get("kind", ""):
        rows = rows.filter(kind=kind)
    total = dict(kinds).get(kind, 0) if kind else sum(n for _, n in kinds)
    try:
        if cursor := request.GET.get("cursor"):
            at, pk = decode_cursor(cursor, ORDER, [read_time, read_uuid])
            rows = rows.filter(Q(at__lt=at) | Q(at=at, pk__lt=pk))
    except InvalidQuery:
        pass
    items = list(rows.select_related("job", "device__node").order_by("-at", "-id")[: PAGE + 1])
    more = len(items) > PAGE
    items = items[:PAGE]
    context = {
        "section": "failures",
        "events": items,
        "next_cursor": encode_cursor(ORDER, [items[-1].at, items[-1].pk]) if more else None,
        "kinds": kinds,
        "kind": kind,
        "text": text,
        "total": total,
    }
    return render(request, "telemetry/failures.html", context)


@login_required
@require_safe
def statistics(request: HttpRequest) -> HttpResponse:
    """Show how often what broke in a period, by kind and by device."""
    period = request.GET.get("period", "day")
    period = period if period in PERIODS else "day"
    rows = failures_for(request.user).filter(at__gte=since(period))
    kinds = by_kind(rows)
    context = {
        "section": "failures",
        "period": period,
        "periods": [(name, words) for name, (words, _, _) in PERIODS.items()],
        "words": PERIODS[period][0],
        "kinds": kinds,
        "devices": by_device(rows),
        "total": sum(row.failures for row in kinds),
    }
    return render(request, "telemetry/failure_statistics.html", context)
