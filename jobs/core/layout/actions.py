"""What a plan changes against the layout a job runs in."""

from enum import StrEnum

from jobs.core.layout.instance import Instance, Layout


class Action(StrEnum):
    """The largest change a plan makes, from none to most."""

    KEEP = "keep"
    REBALANCE = "rebalance"
    REPARTITION = "repartition"
    REGROUP = "regroup"
    EXCLUDE = "exclude"


def action_of(instance: Instance, plan: Layout) -> Action | None:
    """Name the largest change of `plan` against `current`; None where there is no current layout."""
    current = instance.current
    if current is None:
        return None
    working = {name for name in current.devices() if instance.device(name).speed > 0}
    if working - plan.devices():
        return Action.EXCLUDE
    if _groups(plan) != _groups(current):
        return Action.REGROUP
    if _layers(plan) != _layers(current):
        return Action.REPARTITION
    if [r.microbatches for r in plan.replicas] != [r.microbatches for r in current.replicas]:
        return Action.REBALANCE
    return Action.KEEP


def _groups(layout: Layout) -> list[list[frozenset[str]]]:
    return [[frozenset(stage.devices) for stage in replica.stages] for replica in layout.replicas]


def _layers(layout: Layout) -> list[list[int]]:
    return [[stage.layers for stage in replica.stages] for replica in layout.replicas]
