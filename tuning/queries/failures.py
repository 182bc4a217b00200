"""Failed trials of a study, grouped by what went wrong."""

from typing import NamedTuple

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, Max

from jobs.models import Job
from tuning.core.states import TrialState
from tuning.models import Trial

SHOWN = 8


class FailureGroup(NamedTuple):
    """One reason: how many trials it struck, the first few of them, and the last time it did."""

    reason: str
    trials: int
    numbers: list[int]
    last_s: float | None


def failures_of(job: Job, limit: int = 20) -> tuple[list[FailureGroup], int]:
    """Return the commonest reasons first, and how many different ones there are."""
    rows = (
        Trial.objects.filter(job=job, state=TrialState.FAILED)
        .order_by()
        .values("reason")
        .annotate(count=Count("id"), last=Max("ended_s"), numbers=ArrayAgg("number", order_by="number"))
        .order_by("-count", "reason")
    )
    groups = [
        FailureGroup(r["reason"] or "no reason was recorded", r["count"], r["numbers"][:SHOWN], r["last"])
        for r in rows[:limit]
    ]
    return groups, len(groups) if len(groups) < limit else rows.count()
