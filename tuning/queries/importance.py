"""Parameter importance of a study, computed once per number of finished trials."""

from typing import NamedTuple

from django.core.cache import cache

from jobs.models import Job
from tuning.core.importance import Explanation, explain
from tuning.core.states import TrialState
from tuning.models import Trial

MOST_TRIALS = 1500
KEPT_S = 24 * 3600
SCORED = [TrialState.COMPLETED, TrialState.STOPPED]


class StudyImportance(NamedTuple):
    """The explanation, or None where there is too little to explain, and how many trials had a metric."""

    explanation: Explanation | None
    scored: int


def importance_of(job: Job) -> StudyImportance:
    """Return how much each hyperparameter matters; at most 1,500 evenly chosen trials are looked at."""
    rows = Trial.objects.filter(job=job, state__in=SCORED, metric__isnull=False)
    scored = rows.count()
    key = f"importance:{job.pk}:{scored}"
    found: StudyImportance | None = cache.get(key)
    if found is None:
        step = max(-(-scored // MOST_TRIALS), 1)
        pairs = list(rows.order_by("number").values_list("config", "metric"))[::step]
        found = StudyImportance(
            explain([c for c, _ in pairs], [m for _, m in pairs if m is not None]), scored
        )
        cache.set(key, found, KEPT_S)
    return found
