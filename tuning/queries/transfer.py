"""How far a study's surrogates can be trusted: its transfer report, and its targets against their trials."""

from typing import Any, NamedTuple

from jobs.models import Job
from tuning.core.transfer import Fidelity, fidelity
from tuning.models import Target


class Twins(NamedTuple):
    """A trial's metric on its surrogate and on the full-width model."""

    trial: int
    surrogate: float
    target: float


def twins_of(job: Job) -> list[Twins]:
    """Return every configuration that has both metrics."""
    if int(job.spec.get("scaling") or 1) == 1:
        return []
    rows = Target.objects.filter(job=job, variant=0, metric__isnull=False, trial__metric__isnull=False)
    found = rows.order_by("trial__number").values_list("trial__number", "trial__metric", "metric")
    return [Twins(trial, surrogate or 0.0, target or 0.0) for trial, surrogate, target in found]


def fidelity_of(job: Job) -> Fidelity | None:
    """Return how the targets that were trained rank against their surrogates; None below two."""
    twins = twins_of(job)
    if len(twins) < 2:
        return None
    surrogate = {twin.trial: twin.surrogate for twin in twins}
    return fidelity(surrogate, {twin.trial: twin.target for twin in twins}, job.study.mode)


def report_of(job: Job) -> dict[str, Any]:
    """Return the transfer report, {} where there is none; `under_way` where one is made or wanted."""
    chores = job.study.spending.get("chores", ())
    checking = any(chore["kind"] == "check" and chore["end_s"] is None for chore in chores)
    report: dict[str, Any] = dict(job.study.transfer or {})
    return report | {"under_way": checking or job.study.transfer_asked_at is not None}
