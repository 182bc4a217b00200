"""Plans and layouts as plain data: the answer of `forebay plan`, and what pages show of a plan."""

from fractions import Fraction
from typing import Any

from jobs.core.layout.actions import action_of
from jobs.core.layout.baselines import Baseline
from jobs.core.layout.instance import Instance, Layout
from jobs.core.layout.planner import SAME, Plan
from jobs.core.layout.transfer import holdings

TITLES = {
    "no_action": "do nothing",
    "rebalance": "move micro-batches between replicas only",
    "repartition": "move layers between stages only",
    "repartition_rebalance": "move layers and micro-batches, keep the groups",
    "exclude_rebalance": "exclude slow members first, then move layers and micro-batches",
    "drop_replicas": "drop replicas that are hit, share their micro-batches",
    "reroute": "send the micro-batches of dead stages to the same stage of other replicas",
}


def layout_document(instance: Instance, layout: Layout) -> dict[str, Any]:
    """A layout with the devices it leaves idle and the dead ones."""
    working = layout.devices()
    return {
        "replicas": [
            {
                "microbatches": replica.microbatches,
                "stages": [
                    {"devices": list(stage.devices), "layers": stage.layers} for stage in replica.stages
                ],
            }
            for replica in layout.replicas
        ],
        "idle": [device.id for device in instance.living if device.id not in working],
        "dead": [device.id for device in instance.devices if device.speed == 0],
    }


def plan_document(instance: Instance, plan: Plan) -> dict[str, Any]:
    """The whole answer of the planner."""
    return {
        "iteration_time": plan.time,
        "current_time": plan.current_time,
        "lower_bound": plan.lower_bound,
        "gap": plan.gap,
        "optimal": plan.optimal,
        "action": plan.action,
        "plan": layout_document(instance, plan.layout),
        "alternatives": [alternative_document(instance, plan, other) for other in plan.alternatives],
        "transition": transition_document(instance, plan.layout),
        "first_plan_s": plan.first_plan_s,
        "planning_s": plan.planning_s,
        "warnings": list(plan.warnings),
    }


def alternative_document(instance: Instance, plan: Plan, other: Baseline) -> dict[str, Any]:
    """One alternative and, in words, why it loses."""
    return {
        "name": other.name,
        "title": TITLES[other.name],
        "iteration_time": other.time,
        "action": None if other.layout is None else action_of(instance, other.layout),
        "reason": _reason(plan, other),
        "plan": None if other.layout is None else layout_document(instance, other.layout),
    }


def _reason(plan: Plan, other: Baseline) -> str:
    if other.time is None:
        return f"cannot run: {other.obstacle}"
    if other.layout == plan.layout:
        return "this is the plan"
    ratio = other.time / plan.time if plan.time > 0 else 1.0
    if ratio > 1 + SAME:
        return f"{ratio - 1:.2%} slower than the plan"
    if ratio >= 1 - SAME:
        return "as fast as the plan, which changes no more"
    if other.layout is None:
        return "faster, but it is no layout of its own: stages share work across replicas"
    return "faster, but it breaks a rule of the instance (memory, or the number of replicas)"


def transition_document(instance: Instance, layout: Layout) -> dict[str, Any] | None:
    """What has to move to get from the current layout to another; None without a current layout.

    `moved` is in the unit of the layers' memory; with `needs_checkpoint` some of it is on no living device.
    """
    if instance.current is None:
        return None
    before, after = holdings(instance.current), holdings(layout)
    alive = {device.id for device in instance.living}
    intervals: dict[int, set[tuple[Fraction, Fraction]]] = {}
    for name, boxes in before.items():
        if name in alive:
            for box in boxes:
                intervals.setdefault(box.layer, set()).add((box.start, box.end))
    moved, layers, targets = 0.0, set(), set()
    for name, boxes in after.items():
        own = {box.layer: box for box in before.get(name, ())} if name in alive else {}
        for box in boxes:
            mine = own.get(box.layer)
            kept = (
                max(Fraction(0), min(box.end, mine.end) - max(box.start, mine.start)) if mine else Fraction(0)
            )
            if kept < box.share:
                moved += float(box.share - kept) * instance.layers[box.layer].memory
                layers.add(box.layer)
                targets.add(name)
    return {
        "moved": moved,
        "layers": sorted(layers),
        "devices": len(targets),
        "needs_checkpoint": any(
            not _covers_all(intervals.get(layer, set())) for layer in range(len(instance.layers))
        ),
    }


def _covers_all(intervals: set[tuple[Fraction, Fraction]]) -> bool:
    reached = Fraction(0)
    for start, end in sorted(intervals):
        if start > reached:
            return False
        reached = max(reached, end)
    return reached >= 1
