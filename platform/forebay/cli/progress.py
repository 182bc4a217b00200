"""A job's progress in one line per change, and its outcome as an exit code."""

from collections.abc import Callable
from typing import Any

from forebay.cli.errors import Exit
from forebay.cli.output import say
from forebay.client import Job


def progress() -> Callable[[Job], None]:
    """Return a listener for `Job.wait` that says what has changed, and nothing twice."""
    last = ""

    def tell(job: Job) -> None:
        nonlocal last
        line = line_of(job.data)
        if line != last:
            last = line
            say(line)

    return tell


def line_of(data: dict[str, Any]) -> str:
    """Return where a job is in one line: `running (search) · 12 of 50 trials · best 0.968`."""
    summary = data["summary"]
    state = data["state"] + (f" ({data['substate']})" if data.get("substate") else "")
    parts = [state]
    if summary.get("trials_total"):
        parts.append(f"{summary.get('trials_ended', 0)} of {summary['trials_total']} trials")
    if summary.get("steps_total"):
        parts.append(f"step {summary.get('step', 0)} of {summary['steps_total']}")
        if summary.get("loss") is not None:
            parts.append(f"loss {summary['loss']:.4g}")
        return " · ".join(parts)
    shown = summary.get("best") or summary.get("leader")
    if shown and shown.get("metric") is not None:
        parts.append(f"best {shown['metric']:.4g}" + ("" if summary.get("best") else " so far"))
    return " · ".join(parts)


def outcome(job: Job) -> int:
    """Say how a job ended and return the exit code of that."""
    data = job.data
    if job.state != "completed":
        say(f"{job.state}: {data['reason'] or 'no reason given'}")
        return Exit.FAILED
    if data["objective"] and not data["objective_met"]:
        ((rule, bound),) = data["objective"].items()
        metric = (job.best or {}).get("metric")
        reached = "there is no metric" if metric is None else f"the best metric is {metric:g}"
        say(f"objective not met: {rule.replace('_', ' ')} {bound:g}, {reached}")
        return Exit.OBJECTIVE_NOT_MET
    if job.best and job.best.get("metric") is not None:
        metric = f"{job.best['metric']:.6g}"
        is_study = data["kind"] == "study"
        say(
            f"completed: best {metric} by trial {job.best['trial']}"
            if is_study
            else f"completed: loss {metric}"
        )
    else:
        say("completed")
    return Exit.SUCCESS
