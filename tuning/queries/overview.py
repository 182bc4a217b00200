"""Studies for people: the list with its filters, and what the head of a study's page says."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from cluster.core.keyset import decode_cursor, encode_cursor, read_time, read_uuid
from cluster.models import User
from jobs.core.states import ENDED, JobKind, JobState
from jobs.models import Job
from jobs.queries import jobs_for
from tuning.core.states import TrialState
from tuning.models import Target, Trial

PAGE = 50
ORDER = "newest"


class StudyPage(NamedTuple):
    """Some studies, newest first, where the next ones begin, how many match, and how many per state."""

    items: list[Job]
    next_cursor: str | None
    total: int
    by_state: dict[str, int]


def studies_page(
    user: User | AnonymousUser, filters: Mapping[str, str], *, cursor: str | None = None, limit: int = PAGE
) -> StudyPage:
    """Return one page of the studies a person may see.

    Filters: `q` (part of the name or workload), `state`, `team` (slug), `owner` (user name, or `me`),
    `workload`. Raises InvalidQuery for a cursor of another list.
    """
    rows = _filtered(jobs_for(user).filter(kind=JobKind.STUDY, study__isnull=False), user, filters)
    counts = dict(rows.order_by().values_list("state").annotate(n=Count("id")))
    if filters.get("state"):
        rows = rows.filter(state=filters["state"])
    total = counts.get(filters["state"], 0) if filters.get("state") else sum(counts.values())
    if cursor:
        created, pk = decode_cursor(cursor, ORDER, [read_time, read_uuid])
        rows = rows.filter(Q(created_at__lt=created) | Q(created_at=created, pk__lt=pk))
    items = list(rows.order_by("-created_at", "-id")[: limit + 1])
    more = len(items) > limit
    items = items[:limit]
    key = encode_cursor(ORDER, [items[-1].created_at, items[-1].pk]) if more else None
    return StudyPage(items, key, total, {state.value: counts.get(state.value, 0) for state in JobState})


def _filtered(rows: QuerySet[Job], user: User | AnonymousUser, filters: Mapping[str, str]) -> QuerySet[Job]:
    if text := filters.get("q"):
        text = text.replace("\0", "")
        rows = rows.filter(Q(name__icontains=text) | Q(study__workload__icontains=text))
    if team := filters.get("team"):
        rows = rows.filter(team__slug=team)
    if owner := filters.get("owner"):
        rows = rows.filter(owner__username=user.get_username() if owner == "me" else owner)
    if workload := filters.get("workload"):
        rows = rows.filter(study__workload=workload)
    return rows


class StudyFacts(NamedTuple):
    """The figures in the head of a study's page."""

    by_state: dict[str, int]
    trials_ended: int
    trials_total: int
    elapsed_s: float | None
    device_seconds: float
    best: Trial | None
    targets: list[Target]


def facts_of(job: Job) -> StudyFacts:
    """Return what the head of a study's page says, read in four queries whatever its size."""
    rows = Trial.objects.filter(job=job)
    counts = dict(rows.order_by().values_list("state").annotate(n=Count("id")))
    seconds = job.summary.get("device_seconds") or 0.0
    best = None
    if job.study.best_trial is not None:
        best = rows.filter(number=job.study.best_trial).first()
    targets = Target.objects.filter(job=job).select_related("trial", "model").order_by("start_s")
    return StudyFacts(
        by_state={state.value: counts.get(state.value, 0) for state in TrialState},
        trials_ended=job.study.trials_ended,
        trials_total=job.study.trials_total,
        elapsed_s=elapsed_s(job, timezone.now()),
        device_seconds=seconds,
        best=best,
        targets=list(targets),
    )


def elapsed_s(job: Job, now: datetime) -> float | None:
    """Return the seconds a study was worked on, the present stretch included; None before it started."""
    if job.started_at is None:
        return None
    if job.study.elapsed_s:
        return job.study.elapsed_s
    end = job.ended_at if job.state in ENDED and job.ended_at else now
    return max((end - job.started_at).total_seconds(), 0.0)


def summary_rows(job: Job) -> list[tuple[str, Any]]:
    """Return the study's specification as rows for people, defaults included, the space left out."""
    spec = {key: value for key, value in job.spec.items() if key != "space" and value not in (None, {}, [])}
    scheduler = spec.pop("scheduler", None)
    rows = list(spec.items())
    if isinstance(scheduler, dict):
        extra = ", ".join(f"{key} {value}" for key, value in scheduler.items() if key != "name")
        rows.append(("scheduler", f"{scheduler.get('name')}{f' ({extra})' if extra else ''}"))
    elif scheduler:
        rows.append(("scheduler", scheduler))
    if job.objective:
        ((key, bound),) = job.objective.items()
        rows.append(("objective", f"{key.replace('_', ' ')} {bound:g}"))
    return rows
