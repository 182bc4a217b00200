"""Which hyperparameters a study's table shows: those that vary first."""

from typing import NamedTuple

from jobs.models import Job
from tuning.core.importance import varying
from tuning.models import Trial
from tuning.queries.spaces import space_of

LOOKED_AT = 150


class Column(NamedTuple):
    """A hyperparameter as a column of the trial table."""

    name: str
    varies: bool


def columns_of(job: Job) -> list[Column]:
    """Return the hyperparameters of a study, judged by at most 150 trials spread over all of them."""
    step = max(job.study.trials_total // LOOKED_AT, 1)
    numbers = range(0, job.study.trials_total, step)
    configs = list(Trial.objects.filter(job=job, number__in=list(numbers)).values_list("config", flat=True))
    seen = list(dict.fromkeys(name for config in configs for name in config))
    space = space_of(job)
    names = list(dict.fromkeys([*(name for name in space if name in seen), *seen])) or list(space)
    changing = set(varying(configs)) if len(configs) > 1 else set(names)
    return sorted((Column(name, name in changing) for name in names), key=lambda column: not column.varies)
