"""`forebay simulate`: the pipeline schedule of a layout, chunk by chunk."""

from pathlib import Path

import click

from forebay.cli.errors import BadInput, Exit
from forebay.cli.output import emit_json, say
from forebay.cli.plan import read_json

SCHEDULE_NAMES = ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v")


@click.command("simulate")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--plan", "plan_file", type=click.Path(path_type=Path), help="Output of `forebay plan` to simulate."
)
@click.option("--schedule", type=click.Choice(SCHEDULE_NAMES), default="1f1b", show_default=True)
@click.option(
    "--model-chunks",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Per stage, for interleaved.",
)
@click.option(
    "--weight-part",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Share of the backward pass that is the weight gradient, for zb-h1 and zb-v.",
)
@click.option("--json", "as_json", is_flag=True, help="No summary on standard error.")
def command(
    file: Path, plan_file: Path | None, schedule: str, model_chunks: int, weight_part: float, as_json: bool
) -> int:
    """Simulate the pipelines of an instance's `current` layout, or of a plan for it.

    FILE is an instance as for `forebay plan`. Equal replicas are simulated once.
    """
    from jobs.core.errors import ImpossibleSchedule, MalformedInstance
    from jobs.core.layout.reading import check_layout, read_instance, read_plan
    from jobs.core.layout.timelines import simulate_layout, timeline_document

    where = file
    try:
        instance = read_instance(read_json(file))
        layout = instance.current
        if plan_file is not None:
            where = plan_file
            layout = read_plan(read_json(plan_file), instance)
        if layout is None:
            raise MalformedInstance(
                "current: is missing, and no --plan is given: there is nothing to simulate"
            )
        check_layout(instance, layout, "current" if plan_file is None else "plan")
        timelines = simulate_layout(instance, layout, schedule, model_chunks, weight_part)
    except (MalformedInstance, ImpossibleSchedule) as error:
        raise BadInput(f"{where}: {error}") from None
    document = timeline_document(timelines)
    emit_json(document)
    if not as_json:
        say(f"{schedule}: iteration time {document['iteration_time']:.6g}")
    return Exit.SUCCESS
