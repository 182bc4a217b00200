"""`forebay login`: remember a server and a token."""

import sys

import click

from forebay.cli.errors import BadInput, Exit
from forebay.cli.output import emit_json, say
from forebay.cli.server import translated
from forebay.client import Client
from forebay.servers import Server, checked_url, remember


@click.command("login")
@click.argument("url")
@click.option("--token", help="The token; - reads it from standard input; asked for otherwise.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(url: str, token: str | None, as_json: bool) -> int:
    """Check a token at the server at URL and remember both for later commands.

    Make a token on the page "Tokens" of the site, or with `forebay token create` elsewhere.
    """
    with translated():
        address = checked_url(url) or ""
        text = _token(token)
        with Client(address, text) as client:
            me = client.me()
        path = remember(Server(address, text))
    if as_json:
        emit_json({"url": address, "username": me["username"], "token": me["token"], "file": str(path)})
    else:
        say(f"signed in at {address} as {me['username']}; remembered in {path}")
    return Exit.SUCCESS


def _token(given: str | None) -> str:
    if given == "-":
        given = sys.stdin.readline()
    elif given is None:
        given = click.prompt("Token", hide_input=True, err=True)
    text = given.strip()
    if not text or not text.isascii() or not text.isprintable():
        raise BadInput("--token: is empty or not a token")
    return text
