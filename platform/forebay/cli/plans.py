"""A plan for a training job in a few lines of words."""

from typing import Any

from forebay.cli.output import emit_json, say
from forebay.cli.server import checked_id
from forebay.client import Client


def plan_of(client: Client, reconfiguration_id: str) -> dict[str, Any]:
    """Return a plan by the id that a person typed."""
    return client.reconfiguration(checked_id(reconfiguration_id, "RECONFIGURATION", "a reconfiguration"))


def show_plan(plan: dict[str, Any]) -> None:
    """Say what a plan would change and bring."""
    before = plan["baseline_iteration_s"]
    now = "cannot go on as it is" if before is None else f"{before:.3g} s an iteration"
    after, pause = plan["predicted_iteration_s"], plan["predicted_pause_s"]
    say(f"{plan['kind']}: {now}, {after:.3g} s with the plan (estimated), after a pause of {pause:.2g} s")
    for name in ("before", "plan"):
        say(f"{name:7} {layout_line(plan[name])}")


def layout_line(layout: dict[str, Any]) -> str:
    """Return a layout in one line: `r0(2)|r1(2) x4, r2(2)|r3(2) x4; idle r5`, layers and micro-batches."""
    replicas = [
        "|".join(f"{'+'.join(stage['devices'])}({stage['layers']})" for stage in replica["stages"])
        + f" x{replica['microbatches']}"
        for replica in layout["replicas"]
    ]
    left = [f"{name} {', '.join(layout[name])}" for name in ("idle", "dead") if layout.get(name)]
    return "; ".join([", ".join(replicas), *left])


def tell_decision(plan: dict[str, Any], as_json: bool) -> None:
    """Say what was decided."""
    if as_json:
        emit_json(plan)
    else:
        say(f"{plan['state']} by {plan['approver']}, version {plan['version']}")
