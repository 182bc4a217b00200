"""`forebay cancel`."""

import click

from forebay.cli.errors import Exit
from forebay.cli.output import emit_json, say
from forebay.cli.server import job_of, server_options
from forebay.client import Client


@click.command("cancel")
@click.argument("job_id", metavar="JOB")
@server_options
def command(job_id: str, url: str | None, token: str | None, as_json: bool) -> int:
    """Cancel a job. A running one ends as soon as its driver has let go."""
    with Client(url, token) as client:
        job = job_of(client, job_id).cancel()
    if as_json:
        emit_json(job.data)
    else:
        say(f"{job.name}: {job.data['substate'] or job.state}")
    return Exit.SUCCESS
