"""`forebay detect`: slow, stopped or flapping devices in the step logs of a training job."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.errors import BadInput, Exit
from forebay.cli.output import emit_json, say

if TYPE_CHECKING:
    from telemetry.core.detector import Verdict

FORMATS = ("steps", "straggler-analysis")


@click.command("detect")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--format", "format_", type=click.Choice(FORMATS), default="steps", show_default=True)
@click.option("--fail-on-verdict", is_flag=True, help="Exit with 1 where a fault is open at the end.")
@click.option("--json", "as_json", is_flag=True, help="No summary on standard error.")
def command(file: Path, format_: str, fail_on_verdict: bool, as_json: bool) -> int:
    """Find slow, stopped or flapping devices in step logs.

    FILE holds JSON lines, one for each rank and step, with heartbeats between them if you like
    (docs/resihp.md describes both); - reads standard input. Or it is a parquet trace of operations. The
    verdicts are printed as JSON on standard output.
    """
    from telemetry.core.errors import TelemetryError

    try:
        if format_ == "steps":
            from forebay.cli.step_logs import detect_in_lines

            found, document = detect_in_lines(file)
        else:
            from forebay.cli.operation_traces import detect_in_trace

            found, document = detect_in_trace(file)
    except TelemetryError as error:
        raise BadInput(f"{file}: {error}") from None
    emit_json(document)
    if not as_json:
        say(summary(found, document))
    faulty = any(verdict.is_open_fault for verdict in found)
    return Exit.FAILED if fail_on_verdict and faulty else Exit.SUCCESS


def summary(verdicts: "list[Verdict]", document: dict[str, Any]) -> str:
    """The verdicts in a few lines for people."""
    lines = [_line(verdict) for verdict in verdicts] or ["nothing found"]
    lines += [f"note: {warning}" for warning in document["warnings"]]
    return "\n".join(lines)


def _line(verdict: "Verdict") -> str:
    parts = {name: value for name, value in verdict.subject.to_json().items() if value is not None}
    subject = " ".join(f"{name} {value}" for name, value in parts.items()) or "whole job"
    text = f"{str(verdict.kind).replace('_', ' ')}: {subject}"
    if verdict.slowdown is not None:
        text += f", {verdict.slowdown:.2f}x"
    if verdict.first_step is not None:
        text += f" since step {verdict.first_step}"
    if verdict.detected_step is not None:
        text += f", detected at step {verdict.detected_step}"
    return f"{text} ({verdict.state})"
