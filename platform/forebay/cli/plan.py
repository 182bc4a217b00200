"""`forebay plan`: where to run the layers and micro-batches of a job on devices of unequal speed."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.errors import BadInput, Exit
from forebay.cli.output import emit_json, say

if TYPE_CHECKING:
    from jobs.core.layout import Instance, Plan


@click.command("plan")
@click.argument("instance", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="No summary on standard error.")
@click.option("--time-limit", type=click.FloatRange(min=0), help="Seconds to search; overrides time_limit_s.")
def command(instance: Path, as_json: bool, time_limit: float | None) -> int:
    """Plan the layout of a hybrid-parallel job.

    INSTANCE is a JSON file (docs/resihp.md has an example); - reads standard input. The plan is printed as
    JSON on standard output. Exit code 1 and a cause where no layout is possible.
    """
    from jobs.core.errors import MalformedInstance, NoFeasiblePlan
    from jobs.core.layout import make_plan, read_instance
    from jobs.core.layout.documents import plan_document

    try:
        problem = read_instance(read_json(instance))
        if time_limit is not None:
            problem = replace(problem, time_limit_s=time_limit)
        plan = make_plan(problem, time.monotonic)
    except MalformedInstance as error:
        raise BadInput(f"{instance}: {error}") from None
    except NoFeasiblePlan as error:
        emit_json({"error": str(error), "cause": error.cause})
        if not as_json:
            say(f"no plan: {error}")
        return Exit.FAILED
    emit_json(plan_document(problem, plan))
    if not as_json:
        say(summary(problem, plan))
    return Exit.SUCCESS


def read_json(path: Path) -> Any:
    """Read a JSON file or standard input; whatever is wrong with it becomes one sentence."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: is not a text file in UTF-8") from None
    try:
        return json.loads(text)
    except RecursionError:
        raise BadInput(f"{path}: is nested too deeply") from None
    except ValueError as error:
        raise BadInput(f"{path}: is not JSON: {error}") from None


def summary(instance: "Instance", plan: "Plan") -> str:
    """The plan in a few lines for people."""
    how_good = "optimal, proven" if plan.optimal else f"at most {plan.gap:.1%} above the optimum"
    before = "" if plan.current_time is None else f" (now {plan.current_time:.6g}"
    if before:
        gain = plan.current_time / plan.time if plan.current_time and plan.time else 1.0
        before += f", {gain:.2f}x)"
    lines = [f"{plan.action or 'plan'}: iteration time {plan.time:.6g}{before}; {how_good}"]
    shown = plan.layout.replicas[:16]
    for number, replica in enumerate(shown):
        stages = " | ".join(f"{','.join(stage.devices)}: {stage.layers}" for stage in replica.stages)
        lines.append(f"  replica {number}, {replica.microbatches} micro-batches: {stages}")
    if len(plan.layout.replicas) > len(shown):
        lines.append(f"  and {len(plan.layout.replicas) - len(shown)} more replicas")
    lines += [f"  note: {warning}" for warning in plan.warnings]
    return "\n".join(lines)
