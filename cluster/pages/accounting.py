"""Accounting: who has used how many device hours of which kind, as a page and as CSV."""

import csv
from datetime import timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from cluster.models import DayUsage
from cluster.pages.queue import common
from cluster.queries import teams_of

SPANS = ((1, "today"), (7, "7 days"), (30, "30 days"), (365, "a year"))
SUMS = {
    "used_s": Sum("device_s"),
    "borrowed_s": Sum("borrowed_device_s"),
    "recovered_s": Sum("recovered_device_s"),
}
HEAD = [
    "day",
    "team",
    "user",
    "kind",
    "simulated",
    "device_hours",
    "borrowed_device_hours",
    "recovered_device_hours",
]
# A spreadsheet takes a cell that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@login_required
@require_safe
def accounting(request: HttpRequest) -> HttpResponse:
    """Show device hours by team and kind; other teams' are not shown."""
    days = _days(request)
    rows = _rows(request, days)
    teams = (
        rows.order_by("team__slug", "kind", "is_simulated")
        .values("team__slug", "kind", "is_simulated")
        .annotate(**SUMS)
    )
    people = (
        rows.order_by()
        .values("team__slug", "owner__username", "is_simulated")
        .annotate(**SUMS)
        .order_by("-used_s")
    )
    context = common(request, "accounting") | {
        "teams": [_hours(row) for row in teams],
        "people": [_hours(row) for row in people[:100]],
        "spans": SPANS,
        "days": days,
    }
    return render(request, "cluster/accounting.html", context)


@login_required
@require_safe
def accounting_csv(request: HttpRequest) -> HttpResponse:
    """Return the accounts day by day as CSV."""
    days = _days(request)
    answer = HttpResponse(content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="usage-{days}-days.csv"'
    table = csv.writer(answer)
    table.writerow(HEAD)
    rows = _rows(request, days).select_related("team", "owner")
    for row in rows.order_by("day", "team__slug", "owner__username", "kind"):
        cells = [row.day.isoformat(), row.team.slug, row.owner.get_username(), row.kind]
        table.writerow(
            [
                *(f"'{cell}" if cell.startswith(FORMULA) else cell for cell in cells),
                "yes" if row.is_simulated else "no",
                f"{row.device_s / 3600:.6f}",
                f"{row.borrowed_device_s / 3600:.6f}",
                f"{row.recovered_device_s / 3600:.6f}",
            ]
        )
    return answer


def _days(request: HttpRequest) -> int:
    text = request.GET.get("days", "30")
    return int(text) if text.isdigit() and int(text) in dict(SPANS) else 30


def _rows(request: HttpRequest, days: int) -> Any:
    since = timezone.now().date() - timedelta(days=days - 1)
    return DayUsage.objects.filter(day__gte=since, team__in=teams_of(request.user))


def _hours(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "hours": row["used_s"] / 3600,
        "borrowed_hours": row["borrowed_s"] / 3600,
        "recovered_hours": row["recovered_s"] / 3600,
    }
