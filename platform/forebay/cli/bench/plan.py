"""`forebay bench plan`: gain over what other systems would do, and how long planning takes."""

import dataclasses
import statistics
import time
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.bench import report
from forebay.cli.output import say

if TYPE_CHECKING:
    from forebay.cli.bench.plan_cases import Scenario
    from jobs.core.layout import Instance, Plan

_SYSTEMS = {
    "no_action": "no action",
    "rebalance": "Greyhound-like",
    "repartition": "Adaptra-like",
    "exclude_rebalance": "ResiHP-like",
    "drop_replicas": "torchft/Oobleck-like",
    "reroute": "ReCycle-like",
}


@click.command(name="plan")
@report.options(rounds=5, quick_rounds=2)
def command(as_json: bool, quick: bool, rounds: int) -> None:
    """Simulated throughput on 256 devices after failures, and planning time up to 10,240 devices.

    All systems are simulated by the same exact model; only planning times are measured. Rerouting and
    exclusion are our versions of what the papers describe. Every failure is planned twice: with the four
    replicas that run, and with any number of them. "At most" is what any such plan could gain, by a proven
    bound, tight but slow to find; --quick takes the planner's own.
    """
    from forebay.cli.bench.plan_cases import scenarios

    limit_s = 5.0 if quick else 10.0
    gains, free = (
        [_gain(scenario, limit_s, tight=not quick, any_number=any_number) for scenario in scenarios()]
        for any_number in (False, True)
    )
    speeds = [_planning(devices, rounds, limit_s) for devices in (1_024, 10_240)]
    figures = {
        "simulated": gains,
        "summary": _summary(gains),
        "any_number": {"simulated": free, "summary": _summary(free)},
        "planning": speeds,
    }
    lines = ["as many replicas as run today:", *_tables(gains), "any number of replicas:", *_tables(free)]
    lines += report.table(
        ("devices", "first plan s", "whole s", "gap", "gain over no change"),
        [(r["devices"], r["first_plan_s"], r["planning_s"], r["gap"], _cell(r["gain"])) for r in speeds],
    )
    report.show("plan", rounds, quick, as_json, figures, lines)


def _tables(gains: list[dict[str, Any]]) -> list[str]:
    """The gains beside what is possible, and where the devices' speed goes under the plan."""
    lines = ["gain of the plan, and at most what any plan could gain:"]
    lines += report.table(
        ("failure", "replicas", "plan", "bound", *_SYSTEMS.values()),
        [
            (
                row["scenario"],
                row["replicas"],
                f"{row['iteration_time']:.1f}",
                f"{row['lower_bound']:.1f}",
                *(_of(row["gain"][key], row["at_most"][key]) for key in _SYSTEMS),
            )
            for row in gains
        ],
    )
    lines += ["", "where the speed of the living devices goes under the plan, percent:"]
    lines += report.table(
        ("failure", *(term.replace("_", " ") for term in gains[0]["losses"])),
        [(row["scenario"], *(f"{100 * part:.1f}" for part in row["losses"].values())) for row in gains],
    )
    return [*lines, ""]


def _gain(scenario: "Scenario", limit_s: float, tight: bool, any_number: bool) -> dict[str, Any]:
    from forebay.cli.bench.plan_cases import cluster
    from jobs.core.layout import make_plan
    from jobs.core.layout.losses import losses

    say(f"{scenario.kind}: {scenario.name}{', any number of replicas' if any_number else ''}")
    instance = cluster(256, 32, scenario.speeds, limit_s)
    if any_number:
        instance = dataclasses.replace(instance, replicas=None)
    plan = make_plan(instance, time.monotonic)
    bound = _bound(instance, plan) if tight else plan.lower_bound
    times = {other.name: other.time for other in plan.alternatives}
    return {
        "scenario": scenario.name,
        "kind": scenario.kind,
        "replicas": len(plan.layout.replicas),
        "iteration_time": plan.time,
        "planner_bound": plan.lower_bound,
        "lower_bound": bound,
        "gap": plan.time / bound - 1,
        "action": plan.action,
        "gain": {key: _ratio(times[key], plan.time) for key in _SYSTEMS},
        "at_most": {key: _ratio(times[key], bound) for key in _SYSTEMS},
        "losses": losses(instance, plan.layout),
        "planning_s": plan.planning_s,
    }


def _bound(instance: "Instance", plan: "Plan") -> float:
    """The tightest bound found, without regard to how long that takes."""
    from jobs.core.layout.priced import PricedBound
    from jobs.core.layout.work import Work

    return PricedBound(Work(instance), len(plan.layout.replicas)).lower_bound(plan.lower_bound, plan.time)


def _ratio(time: float | None, ours: float) -> float | None:
    return None if time is None else time / ours


def _cell(gain: float | None) -> str:
    return "cannot run" if gain is None else f"{gain:.2f}x"


def _of(gain: float | None, at_most: float | None) -> str:
    if gain is None or at_most is None:
        return "cannot run"
    return f"{gain:.2f}x of {at_most:.2f}x"


def _summary(gains: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Least, median and largest gain over every system in the cases it can run, and the largest possible."""
    found = {}
    for key in _SYSTEMS:
        ratios = [row["gain"][key] for row in gains if row["gain"][key] is not None]
        found[key] = {
            "cases": len(ratios),
            "min": min(ratios),
            "median": statistics.median(ratios),
            "max": max(ratios),
            "at_most": max(row["at_most"][key] for row in gains if row["at_most"][key] is not None),
        }
    return found


def _planning(devices: int, rounds: int, limit_s: float) -> dict[str, Any]:
    from forebay.cli.bench.plan_cases import cluster, spread
    from jobs.core.layout import make_plan

    say(f"planning for {devices:,} devices")
    plans: list[Plan] = []
    for seed in range(rounds):
        plans.append(make_plan(cluster(devices, 32, spread(devices, seed), limit_s), time.monotonic))
    before = [_ratio(other.time, plan.time) for plan in plans for other in plan.alternatives[:1]]
    known = [ratio for ratio in before if ratio is not None]
    return {
        "devices": devices,
        "first_plan_s": statistics.median(plan.first_plan_s for plan in plans),
        "planning_s": statistics.median(plan.planning_s for plan in plans),
        "gap": statistics.median(plan.gap for plan in plans),
        "gain": statistics.median(known) if known else None,
    }
