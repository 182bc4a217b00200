"""`forebay lend`."""

import click

from forebay.cli.errors import Exit
from forebay.cli.output import emit_json, say
from forebay.cli.server import checked_id, server_options
from forebay.client import Client


@click.command("lend")
@click.argument("switch", type=click.Choice(("on", "off")))
@click.argument("job_id", metavar="JOB")
@click.option("--reason", default="", help="For the audit log and whoever wonders.")
@server_options
def command(
    switch: str, job_id: str, reason: str, url: str | None, token: str | None, as_json: bool
) -> int:  # fmt: skip
    """Stop the lending of a training job's bubbles at once (off), or allow it again (on).

    Trials that run there go on elsewhere, from their last epoch. Needs the role operator. Exit code 4 if the
    job has ended or lends nothing.
    """
    with Client(url, token) as client:
        found = client.lend(checked_id(job_id, "JOB"), switch == "on", reason)
    if as_json:
        emit_json(found)
    else:
        say("its bubbles may be used" if found["lending"] else "its bubbles are its own again")
    return Exit.SUCCESS
