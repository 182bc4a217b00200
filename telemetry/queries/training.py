"""Training jobs for people: the list with its filters, and what a job's page shows of its run."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from cluster.core.keyset import decode_cursor, encode_cursor, read_time, read_uuid
from cluster.models import User
from jobs.core.states import ENDED, JobKind, JobState, ReconfigurationState
from jobs.models import Iteration, Job, Reconfiguration, TrainingRun
from jobs.queries import jobs_for
from telemetry.core.figures.iterations import Mark, Step
from telemetry.core.figures.pipeline import Track, measured_track
from telemetry.core.layouts import LayoutView, layout_view
from telemetry.core.states import FAULTS, VerdictState
from telemetry.models import Verdict

PAGE = 50
ORDER = "newest-training"
MOST_STEPS = 20_000
MOST_MARKS = 12


class TrainingPage(NamedTuple):
    """Some training jobs, newest first, where the next ones begin, how many match, and how many per state."""

    items: list[Job]
    next_cursor: str | None
    total: int
    by_state: dict[str, int]


def training_jobs(user: User | AnonymousUser) -> QuerySet[Job]:
    """Return the training jobs that a person may see."""
    rows = jobs_for(user).filter(kind=JobKind.TRAINING, training__isnull=False)
    return rows.select_related("team", "owner", "training")


def training_page(
    user: User | AnonymousUser, filters: Mapping[str, str], *, cursor: str | None = None, limit: int = PAGE
) -> TrainingPage:
    """Return one page of the training jobs a person may see.

    Filters: `q` (part of the name or workload), `state`, `team` (slug), `owner` (user name, or `me`) and
    `attention` (`incident` or `approval`). Raises InvalidQuery for a cursor of another list.
    """
    rows = _filtered(_with_attention(training_jobs(user)), user, filters)
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
    return TrainingPage(items, key, total, {state.value: counts.get(state.value, 0) for state in JobState})


def _with_attention(rows: QuerySet[Job]) -> QuerySet[Any]:
    """Mark jobs with an open incident and with a plan that waits."""
    incident = Verdict.objects.filter(job=OuterRef("pk"), state=VerdictState.OPEN, kind__in=sorted(FAULTS))
    waiting = Reconfiguration.objects.filter(job=OuterRef("pk"), state=ReconfigurationState.PROPOSED)
    return rows.annotate(has_incident=Exists(incident), waits=Exists(waiting))


def _filtered(rows: QuerySet[Any], user: User | AnonymousUser, filters: Mapping[str, str]) -> QuerySet[Job]:
    if text := filters.get("q", "").replace("\0", ""):
        rows = rows.filter(Q(name__icontains=text) | Q(spec__workload__icontains=text))
    if team := filters.get("team"):
        rows = rows.filter(team__slug=team)
    if owner := filters.get("owner"):
        rows = rows.filter(owner__username=user.get_username() if owner == "me" else owner)
    if filters.get("attention") == "incident":
        rows = rows.filter(has_incident=True)
    if filters.get("attention") == "approval":
        rows = rows.filter(waits=True)
    return rows


def slowdowns_of(run: TrainingRun) -> dict[int, float]:
    """Return how slow each rank was lately, as a factor of its healthy time; unknown ranks are left out."""
    found = {}
    for index, row in enumerate(run.health if isinstance(run.health, list) else []):
        value = row.get("slowdown") if isinstance(row, dict) else None
        if isinstance(value, int | float):
            found[int(row.get("rank", index))] = float(value)
    for verdict in Verdict.objects.filter(job_id=run.pk, state=VerdictState.OPEN, factor__isnull=False):
        rank = (verdict.subject or {}).get("rank")
        if isinstance(rank, int):
            found[rank] = max(found.get(rank, 0.0), float(verdict.factor or 0.0))
    return found


def layout_of(run: TrainingRun) -> LayoutView:
    """Return the present layout with its devices and how slow they are."""
    return layout_view(run.layout or {}, run.devices or [], slowdowns_of(run))


def steps_of(run: TrainingRun) -> list[Step]:
    """Return the latest committed steps in order."""
    names = ("step", "seconds", "expected_s", "loss", "epoch")
    rows = Iteration.objects.filter(run=run).order_by("-step").values_list(*names)[:MOST_STEPS]
    return [Step(*row) for row in rows][::-1]


def marks_of(job: Job) -> list[Mark]:
    """Return where incidents began and where the layout changed, the latest ones."""
    verdicts = Verdict.objects.filter(job=job, kind__in=sorted(FAULTS), first_step__isnull=False)
    marks = [
        Mark(step or 0, "incident", "incident")
        for step in verdicts.order_by("-opened_at").values_list("first_step", flat=True)[:MOST_MARKS]
    ]
    epochs: dict[int, int] = {}
    changed = Iteration.objects.filter(run_id=job.pk).order_by("step").values_list("epoch", "step")
    for epoch, step in changed.distinct("epoch").order_by("epoch", "step"):
        epochs[epoch] = step
    first = min(epochs, default=None)
    marks += [Mark(step, "new layout", "change") for epoch, step in epochs.items() if epoch != first][
        -MOST_MARKS:
    ]
    return marks


def measured_tracks(run: TrainingRun) -> tuple[int | None, list[Track]]:
    """Return the latest step whose raw chunks are kept, and what each rank did in it."""
    row = Iteration.objects.filter(run=run, ranks__isnull=False).order_by("-step").first()
    if row is None or not isinstance(row.ranks, list):
        return None, []
    tracks = []
    for item in sorted(row.ranks, key=_place):
        if item.get("chunks"):
            label = f"r{item.get('rank')} · replica {item.get('replica')}, stage {item.get('stage')}"
            tracks.append(measured_track(label, item))
    return row.step, tracks


def _place(row: dict[str, Any]) -> tuple[int, int, int]:
    return (row.get("replica") or 0, row.get("stage") or 0, row.get("rank") or 0)


def elapsed_s(job: Job, now: datetime) -> float | None:
    """Return for how long a job has run, in seconds; None before it started."""
    if job.started_at is None:
        return None
    end = job.ended_at if job.state in ENDED and job.ended_at else now
    return max((end - job.started_at).total_seconds(), 0.0)
