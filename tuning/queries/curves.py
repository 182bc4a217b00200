"""What the charts of a study are drawn from: attempts over time, learning curves, parallel coordinates."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from django.db.models import F

from jobs.models import Job
from telemetry.core.figures import Attempt, Curve, TargetMark
from tuning.core.importance import varying
from tuning.core.states import TRIAL_ENDED
from tuning.models import Target, Trial
from tuning.queries.spaces import space_of

BEST_CURVES = 20
MOST_CHOSEN = 12
MOST_LINES = 1500
Point = tuple[int, float | None]


def attempts_of(job: Job) -> list[Attempt]:
    """Return every ended trial that has a metric, in order of its end."""
    rows = Trial.objects.filter(job=job, state__in=TRIAL_ENDED, metric__isnull=False, ended_s__isnull=False)
    columns = rows.order_by("ended_s", "number").values_list("number", "ended_s", "metric")
    return [Attempt(n, e or 0.0, m or 0.0) for n, e, m in columns.iterator(chunk_size=10_000)]


def target_marks_of(job: Job) -> list[TargetMark]:
    """Return the target models as marks of the history."""
    rows = Target.objects.filter(job=job, start_s__isnull=False).order_by("start_s")
    columns = rows.values_list("trial__number", "start_s", "end_s", "metric")
    return [TargetMark(number, start or 0.0, end, metric) for number, start, end, metric in columns]


def best_first(job: Job) -> Any:
    """Return the order of a study's trials from the best on; trials without a metric come last."""
    key = F("metric")
    return key.desc(nulls_last=True) if job.study.mode == "max" else key.asc(nulls_last=True)


def curves_of(job: Job, chosen: Collection[int] = ()) -> list[Curve]:
    """Return the curves of the best 20 trials and of at most twelve chosen ones."""
    best = list(
        Trial.objects.filter(job=job, metric__isnull=False).order_by(best_first(job), "number")[:BEST_CURVES]
    )
    wanted = list(dict.fromkeys(chosen))[:MOST_CHOSEN]
    extra = Trial.objects.filter(job=job, number__in=set(wanted) - {t.number for t in best})
    picked = set(wanted)
    return [
        Curve(f"trial {t.number}", points(t.curve), t.number in picked, bool(best) and t.pk == best[0].pk)
        for t in [*best, *extra]
    ]


def points(curve: Sequence[Sequence[Any]]) -> list[Point]:
    """Return a stored curve as points."""
    return [(int(epoch), None if value is None else float(value)) for epoch, value in curve]


class Axis(NamedTuple):
    """One axis of the parallel coordinates: `kind` is `linear`, `log` or `category`."""

    name: str
    kind: str
    values: list[Any]
    categories: list[str]


class Parallel(NamedTuple):
    """Configurations as lines: axes with one value per line, the trials' numbers, and how many there are."""

    axes: list[Axis]
    numbers: list[int]
    metrics: list[float]
    total: int


def parallel_of(job: Job, limit: int = MOST_LINES) -> Parallel:
    """Return the lines of trials with a metric: the best third of `limit` and an even sample of the rest."""
    rows = Trial.objects.filter(job=job, metric__isnull=False)
    total = rows.count()
    best = set(rows.order_by(best_first(job), "number").values_list("number", flat=True)[: limit // 3])
    numbers = list(rows.order_by("number").values_list("number", flat=True))
    step = max(-(-total // max(limit - len(best), 1)), 1)
    taken = numbers if total <= limit else sorted(best | set(numbers[::step]))
    found = {t["number"]: t for t in rows.filter(number__in=taken).values("number", "config", "metric")}
    drawn = [found[n] for n in taken if n in found]
    configs = [t["config"] for t in drawn]
    logs = log_parameters(job)
    order = list(space_of(job))
    names = sorted(varying(configs), key=lambda n: order.index(n) if n in order else len(order))
    axes = [_axis(name, [c.get(name) for c in configs], logs) for name in names]
    return Parallel(axes, [t["number"] for t in drawn], [t["metric"] or 0.0 for t in drawn], total)


def log_parameters(job: Job) -> set[str]:
    """Return the parameters that the study searches on a logarithmic scale."""
    return {name for name, entry in space_of(job).items() if "log" in str(entry.get("type"))}


def _axis(name: str, values: list[Any], logs: set[str]) -> Axis:
    given = [v for v in values if v is not None]
    if given and all(isinstance(v, int | float) and not isinstance(v, bool) for v in given):
        if len(set(given)) <= 5 and all(isinstance(v, int) for v in given):
            order = sorted(set(given))
            return Axis(
                name,
                "category",
                [None if v is None else order.index(v) for v in values],
                list(map(str, order)),
            )
        spans = min(given) > 0 and max(given) / min(given) > 100
        return Axis(name, "log" if min(given) > 0 and (name in logs or spans) else "linear", values, [])
    labels = list(dict.fromkeys(_label(v) for v in given))
    return Axis(name, "category", [None if v is None else labels.index(_label(v)) for v in values], labels)


def _label(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
