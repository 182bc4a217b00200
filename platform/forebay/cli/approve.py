"""`forebay approve`."""

import click

from forebay.cli.errors import Exit
from forebay.cli.plans import plan_of, show_plan, tell_decision
from forebay.cli.server import server_options
from forebay.client import Client


@click.command("approve")
@click.argument("reconfiguration_id", metavar="RECONFIGURATION")
@click.option("--comment", default="", help="Why, for the record.")
@click.option("--break-glass", default="", metavar="REASON",
              help="Approve what you asked for yourself; an admin says why nobody else can.")  # fmt: skip
@server_options
def command(
    reconfiguration_id: str, comment: str, break_glass: str, url: str | None, token: str | None, as_json: bool
) -> int:
    """Approve a plan for a training job, in the version that is shown here.

    Exit codes: 3 not allowed (also for what you asked for yourself), 4 it was decided, has expired or the
    job has moved on.
    """
    with Client(url, token) as client:
        seen = plan_of(client, reconfiguration_id)
        show_plan(seen)
        decided = client.approve(seen, comment=comment, break_glass=break_glass)
    tell_decision(decided, as_json)
    return Exit.SUCCESS
