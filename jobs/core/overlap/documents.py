"""A plan as the JSON document of `forebay overlap`."""

from typing import Any

from jobs.core.overlap.decisions import explain
from jobs.core.overlap.planner import Plan
from jobs.core.overlap.simulator import Timeline, simulate


def plan_document(plan: Plan, timeline: Timeline | None = None) -> dict[str, Any]:
    """Seconds and bytes in full precision; `order` and `buckets` hold node ids.

    Args:
        timeline: of the plan, where it was simulated already.
    """
    timeline = timeline or simulate(plan.graph, plan.chosen.steps)
    names = [node.name for node in plan.graph.nodes]
    # A bound is at most the makespan; sums in another order may differ in the last digit.
    lower_bound = min(plan.bounds.lower_bound_s, timeline.makespan_s)
    return {
        "policy": plan.policy,
        "exact": plan.exact,
        "order": [names[member] for step in plan.chosen.steps for member in step],
        "buckets": [[names[member] for member in step] for step in plan.chosen.steps if len(step) > 1],
        "makespan": timeline.makespan_s,
        "serial_makespan": plan.given.makespan_s,
        "lower_bound": lower_bound,
        "critical_path": min(plan.bounds.critical_path_s, lower_bound),
        "peak_bytes": plan.chosen.peak_bytes,
        "serial_peak_bytes": plan.given.peak_bytes,
        "exposed_comm": timeline.exposed_comm_s,
        "compute_idle": timeline.compute_idle_s,
        "decisions": explain(plan, timeline),
    }
