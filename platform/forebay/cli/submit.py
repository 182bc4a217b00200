"""`forebay submit`: hand a job file to the server, and wait for it where a script needs the outcome."""

import sys
from typing import Any

import click

from forebay.cli.errors import Exit
from forebay.cli.output import emit_json, say
from forebay.cli.progress import outcome, progress
from forebay.cli.server import server_options
from forebay.client import Client, JobTimeout
from forebay.job_files import change, parse_job, read_job_file


@click.command("submit")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--set", "assignments", multiple=True, metavar="PATH=VALUE", help="Replace a value: spec.trials=5."
)
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells how it went.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="With --wait: give up waiting (exit 5); the job goes on.")  # fmt: skip
@click.option("--key", help="Idempotency key: submitting again with it gives the same job.")
@server_options
def command(
    file: str, assignments: tuple[str, ...], wait: bool, timeout_s: float | None, key: str | None,
    url: str | None, token: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Submit the job in FILE (YAML or JSON, - for standard input).

    With --wait: 0 completed, 1 failed or cancelled, 5 timed out, 7 the objective was not met.
    """
    body = change(_read(file), assignments)
    with Client(url, token) as client:
        job = client.submit(body, key=key)
        say(f"submitted {job.name}: {job.data['links']['html'] or job.data['links']['self']}")
        if not wait:
            emit_json(job.data) if as_json else click.echo(job.id)
            return Exit.SUCCESS
        try:
            job.wait(timeout_s, progress())
        except JobTimeout as error:
            say(str(error))
            emit_json(job.data) if as_json else click.echo(job.id)
            return Exit.TIMED_OUT
        except KeyboardInterrupt:
            say(f"interrupted; job {job.id} goes on")
            return Exit.INTERRUPTED
        emit_json(job.data) if as_json else click.echo(job.id)
        return outcome(job)


def _read(file: str) -> dict[str, Any]:
    if file == "-":
        return parse_job(sys.stdin.read(), "standard input")
    from pathlib import Path

    return read_job_file(Path(file))
