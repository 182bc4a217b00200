"""What the stream of a study says when it starts anew: what its events would have told, in short."""

from typing import Any

from django.db.models import Count, F

from jobs.models import Job
from tuning.core.states import TRIAL_ENDED, TrialState
from tuning.models import Container, Trial

LATEST, MOST_RUNNING = 100, 1000


def study_snapshot(job: Job) -> dict[str, Any]:
    """Return how many trials are in which state, the running ones, the latest that ended, what runs now.

    Targets stand in the job's `summary`; all trials are to be had from `/api/v1/jobs/{id}/trials`.
    """
    trials = job.trials.all()
    counts = trials.order_by().values_list("state").annotate(Count("pk"))
    running = trials.filter(state=TrialState.RUNNING).order_by("number")
    ended = trials.filter(state__in=[str(state) for state in TRIAL_ENDED])
    newest_first = ended.order_by(F("ended_s").desc(nulls_last=True), "-number")
    containers = job.containers.filter(end_s__isnull=True).order_by("start_s", "run")
    return {
        "trials": {
            "by_state": dict(counts),
            "running": [_trial(row) for row in running[:MOST_RUNNING]],
            "latest": [_trial(row) for row in newest_first[:LATEST]],
        },
        "containers": [_container(row) for row in containers],
    }


def _trial(row: Trial) -> dict[str, Any]:
    """A trial as `trial.finished` tells it."""
    names = ("config", "metric", "epochs", "state", "reason", "device_seconds")
    return {"trial": row.number, **{name: getattr(row, name) for name in names}}


def _container(row: Container) -> dict[str, Any]:
    """A container as `container.started` tells it."""
    return {
        "container": row.run, "trials": row.trials, "device": row.device_label,
        "start_s": row.start_s, "end_s": row.end_s, "outcome": row.outcome or None, "note": row.note or None,
    }  # fmt: skip
