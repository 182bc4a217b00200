"""`forebay inject`."""

import click

from forebay.cli.errors import Exit
from forebay.cli.output import emit_json, say
from forebay.cli.server import checked_id, server_options
from forebay.client import Client

MODES = ("slow", "stop", "flap", "stall")


@click.command("inject")
@click.argument("mode", type=click.Choice(MODES))
@click.option("--job", "job_id", required=True, metavar="JOB", help="A running training job.")
@click.option("--rank", required=True, type=click.IntRange(min=0), help="Which of its ranks.")
@click.option("--factor", default=2.0, show_default=True, type=click.FloatRange(1.0, 100.0),
              help="With slow and flap: times the healthy time; 1 ends a slowdown.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0.1, 86_400.0),
              help="How long; the default is until the job ends.")  # fmt: skip
@server_options
def command(
    mode: str, job_id: str, rank: int, factor: float, seconds: float | None,
    url: str | None, token: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Slow down (slow, flap), halt (stall) or kill (stop) a rank of a training job, really.

    For demonstrations and tests of the recovery loop. Exit code 4 if the job does not run.
    """
    with Client(url, token) as client:
        job = checked_id(job_id, "--job")
        injected = client.inject(job, mode, rank, factor=factor, seconds=seconds)
    if as_json:
        emit_json(injected)
    else:
        by = f" by {factor:g}" if mode in ("slow", "flap") else ""
        say(f"rank {rank}: {mode}{by}{f' for {seconds:g} s' if seconds else ''}")
    return Exit.SUCCESS
