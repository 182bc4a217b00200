"""Where a study's device time went, and what each trial cost inside its containers."""

from typing import NamedTuple

from jobs.models import Job
from tuning.models import Container, Target, Trial


class TrialShare(NamedTuple):
    """A trial's part of one container, in device seconds for one of its epochs."""

    trial: int
    container: str
    size: int
    batch_size: int
    seconds_per_epoch: float


def spending_of(job: Job, elapsed_s: float) -> dict[str, float]:
    """Return device seconds by purpose: search, target, profiling, repacking, compiling, check, idle.

    Repacking is the part of a container's life in which it was built again, cut down or put aside.
    """
    spent = job.study.spending
    if not spent:
        return {}
    compiling_s = spent.get("compiling_s", 0.0)
    of_targets_s = spent.get("target_compiling_s", 0.0)
    parts = {
        "search": max(spent.get("trial_device_s", 0.0) - (compiling_s - of_targets_s), 0.0),
        "target": max(spent.get("target_device_s", 0.0) - of_targets_s, 0.0),
        "profiling": spent.get("profiling_s", 0.0),
        "repacking": spent.get("repacking_s", 0.0),
        "compiling": compiling_s,
        "check": spent.get("transfer_check_s", 0.0),
    }
    return parts | {"idle": max(_devices(job) * elapsed_s - sum(parts.values()), 0.0)}


def _devices(job: Job) -> int:
    used = set(Container.objects.filter(job=job).order_by().values_list("device_label", flat=True).distinct())
    used |= set(Target.objects.filter(job=job).order_by().values_list("device_label", flat=True).distinct())
    for beside in Target.objects.filter(job=job).exclude(beside=[]).values_list("beside", flat=True):
        used |= set(beside)
    used |= {chore["device"] for chore in job.study.spending.get("chores", ())}
    return len(used - {""})


def shares_of(job: Job) -> list[TrialShare]:
    """Return what every trial cost in every container in which it trained for at least one epoch."""
    reached = dict(Trial.objects.filter(job=job).values_list("number", "epochs"))
    columns = ("run", "batch_size", "trials", "from_epoch", "epochs", "spent")
    found = []
    for run, batch_size, trials, start, end, spent in Container.objects.filter(job=job).values_list(*columns):
        for number in trials:
            epochs = min(end, reached.get(number, 0)) - start
            seconds = spent.get(str(number), 0.0)
            if epochs > 0 and seconds > 0:
                found.append(TrialShare(number, run, len(trials), batch_size or 0, seconds / epochs))
    return found


def alone_of(job: Job) -> dict[int, float]:
    """Return what an epoch of one trial by itself costs, as the probe measured it, by batch size."""
    found: dict[int, float] = {}
    for entry in (job.summary.get("fusion") or {}).values():
        step_s = entry.get("step_s", {}).get("1")
        if step_s and entry.get("steps_per_epoch"):
            found[entry["batch_size"]] = step_s * entry["steps_per_epoch"]
    return found
