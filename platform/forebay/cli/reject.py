"""`forebay reject`."""

import click

from forebay.cli.errors import Exit
from forebay.cli.plans import plan_of, show_plan, tell_decision
from forebay.cli.server import server_options
from forebay.client import Client


@click.command("reject")
@click.argument("reconfiguration_id", metavar="RECONFIGURATION")
@click.option("--comment", default="", help="Why, for the record.")
@server_options
def command(reconfiguration_id: str, comment: str, url: str | None, token: str | None, as_json: bool) -> int:
    """Reject a plan for a training job; the job stays as it is. Exit code 4 if it was decided already."""
    with Client(url, token) as client:
        seen = plan_of(client, reconfiguration_id)
        show_plan(seen)
        decided = client.reject(seen, comment=comment)
    tell_decision(decided, as_json)
    return Exit.SUCCESS
