"""What a study will cost: trials x epochs x seconds, measured on earlier trials where there are any."""

from typing import NamedTuple

from django.db.models import Sum

from cluster.queries import usable_devices
from tuning.core.study.spec import Scheduler, StudySpec
from tuning.models import Trial

LOOKED_AT = 400


class Cost(NamedTuple):
    """An estimate; `seconds_per_epoch` is the mean of `measured_trials` trials, None without any."""

    epochs: float
    seconds_per_epoch: float | None
    measured_trials: int
    same_scaling: bool
    devices: int
    device_seconds: float | None
    makespan_s: float | None


def estimate(spec: StudySpec, epochs_of_trial: int) -> Cost:
    """Estimate a study's search; target models come on top."""
    epochs = spec.trials * expected_epochs(spec.scheduler, epochs_of_trial)
    devices = min(spec.devices or 4096, max(usable_devices().count(), 1))
    speed, measured, same = _measured(spec)
    total = None if speed is None else speed * epochs
    return Cost(epochs, speed, measured, same, devices, total, None if total is None else total / devices)


def expected_epochs(scheduler: Scheduler, epochs: int) -> float:
    """Return the epochs that a trial trains on average when each rung lets one in `reduction` go on."""
    if scheduler.name == "fifo":
        return float(epochs)
    spent, reached, share = 0.0, 0, 1.0
    rung = min(scheduler.grace, epochs)
    while reached < epochs:
        spent += share * (rung - reached)
        reached, share = rung, share / scheduler.reduction
        rung = min(rung * scheduler.reduction, epochs)
    return spent


def _measured(spec: StudySpec) -> tuple[float | None, int, bool]:
    seen = Trial.objects.filter(job__study__workload=spec.workload, epochs__gt=0, device_seconds__gt=0)
    for rows, same in ((seen.filter(job__spec__scaling=spec.scaling), True), (seen, False)):
        recent = rows.order_by("-id").values_list("pk", flat=True)[:LOOKED_AT]
        sums = Trial.objects.filter(pk__in=list(recent)).aggregate(s=Sum("device_seconds"), e=Sum("epochs"))
        if sums["e"]:
            return sums["s"] / sums["e"], len(recent), same
    return None, 0, False
