"""`forebay jobs`: what there is, newest first."""

import click

from forebay.cli.errors import Exit
from forebay.cli.output import emit_json, say
from forebay.cli.progress import line_of
from forebay.cli.server import server_options
from forebay.client import Client


@click.command("jobs")
@click.option("--state", help="Only these states, separated by commas.")
@click.option("--kind", help="Only these kinds, separated by commas.")
@click.option("--team", help="Only jobs of this team.")
@click.option("--name", help="Only jobs whose name contains this.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@server_options
def command(
    state: str | None, kind: str | None, team: str | None, name: str | None, limit: int,
    url: str | None, token: str | None, as_json: bool,
) -> int:  # fmt: skip
    """List jobs, newest first."""
    filters = {"state": state, "kind": kind, "team": team, "name": name, "limit": str(limit)}
    with Client(url, token) as client:
        page = client.transport.get("/api/v1/jobs", {k: v for k, v in filters.items() if v})
    if as_json:
        emit_json(page)
        return Exit.SUCCESS
    for job in page["items"]:
        click.echo(f"{job['id']}  {job['created_at'][:16]}  {job['name'][:40]:40}  {line_of(job)}")
    if not page["items"]:
        say("no jobs; `forebay submit FILE` makes one")
    elif page["next"]:
        say(f"showing the newest {limit}; there are more")
    return Exit.SUCCESS
