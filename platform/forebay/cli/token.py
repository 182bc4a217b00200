"""`forebay token`: create, list and revoke API tokens."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import click

from forebay.cli.errors import Exit
from forebay.cli.output import emit_json, say
from forebay.cli.server import checked_id, server_options
from forebay.client import Client

SCOPES = ("read", "submit", "operate", "admin")


@click.group("token")
def command() -> None:
    """Create, list and revoke API tokens."""


@command.command("create")
@click.option("--name", required=True, help="What the token is for.")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(SCOPES), default=("read",), show_default=True
)
@click.option("--team", help="Bind the token to one team.")
@click.option(
    "--days", type=click.IntRange(1, 3650), help="After how many days it expires; never if not given."
)
@server_options
def create(
    name: str, scopes: tuple[str, ...], team: str | None, days: int | None,
    url: str | None, token: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Create a token and print it, this once."""
    expires_at = (datetime.now(UTC) + timedelta(days=days)).isoformat() if days else None
    body = {"name": name, "scopes": list(dict.fromkeys(scopes)), "team": team, "expires_at": expires_at}
    with Client(url, token) as client:
        made = client.transport.post("/api/v1/tokens", body, key=str(uuid4()))
    if as_json:
        emit_json(made)
    else:
        say("keep it now: it is never shown again")
        click.echo(made["token"])
    return Exit.SUCCESS


@command.command("list")
@server_options
def list_(url: str | None, token: str | None, as_json: bool) -> int:
    """List your tokens, newest first."""
    with Client(url, token) as client:
        rows = list(client.pages("/api/v1/tokens"))
    if as_json:
        emit_json({"items": rows})
        return Exit.SUCCESS
    for row in rows:
        state = "revoked" if row["revoked_at"] else f"used {(row['last_used_at'] or 'never')[:16]}"
        click.echo(
            f"{row['id']}  {row['prefix']}  {row['name'][:30]:30}  {','.join(row['scopes']):26}  {state}"
        )
    return Exit.SUCCESS


@command.command("revoke")
@click.argument("token_id", metavar="ID")
@server_options
def revoke(token_id: str, url: str | None, token: str | None, as_json: bool) -> int:
    """Revoke the token with this id, at once and for good."""
    with Client(url, token) as client:
        client.transport.delete(f"/api/v1/tokens/{checked_id(token_id, 'ID', 'a token')}")
    emit_json({"revoked": token_id}) if as_json else say(f"revoked {token_id}")
    return Exit.SUCCESS
