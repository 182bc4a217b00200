"""`forebay show`: one job."""

import json

import click

from forebay.cli.errors import Exit
from forebay.cli.output import emit_json
from forebay.cli.progress import line_of
from forebay.cli.server import job_of, server_options
from forebay.client import Client

ROWS = ("id", "kind", "name", "team", "owner", "created_at", "started_at", "ended_at", "reason")


@click.command("show")
@click.argument("job_id", metavar="JOB")
@server_options
def command(job_id: str, url: str | None, token: str | None, as_json: bool) -> int:
    """Show one job: its state, its best trial, where to find more."""
    with Client(url, token) as client:
        data = job_of(client, job_id).data
    if as_json:
        emit_json(data)
        return Exit.SUCCESS
    click.echo(line_of(data))
    for name in ROWS:
        if data[name]:
            click.echo(f"{name:12}{data[name]}")
    if best := data["summary"].get("best"):
        click.echo(f"{'best':12}trial {best['trial']}, {best['metric']}, {json.dumps(best['config'])}")
    for name, address in data["links"].items():
        if address and name != "self":
            click.echo(f"{name:12}{address}")
    return Exit.SUCCESS
