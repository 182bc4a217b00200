"""`forebay up`: the whole platform on this machine, with one link to sign in."""

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from forebay.cli.errors import BadInput, CommandError, Exit
from forebay.cli.output import emit_json, say
from forebay.supervisor.directory import DataDirectory, find_data_directory
from forebay.supervisor.environment import given_addresses
from forebay.supervisor.errors import AlreadyRunning, BadSetting, SupervisorError
from forebay.supervisor.launch import run_detached, run_here
from forebay.supervisor.runtime import Runtime
from forebay.supervisor.supervisor import Options


@click.command("up")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where all data is kept.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port on 127.0.0.1 (default: a free one, then the same)."
)
@click.option(
    "--public-url", metavar="URL", help="The address people use, where a proxy stands before this one."
)
@click.option("--no-demo", is_flag=True, help="Do not load the demo project and its study.")
@click.option("--reset", is_flag=True, help="Delete all data first; asks.")
@click.option("--yes", is_flag=True, help="With --reset: do not ask.")
@click.option("-d", "--detach", is_flag=True, help="Return once the platform answers and leave it running.")
@click.option("-v", "--verbose", is_flag=True, help="Show the log of every part.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document once the platform answers.")
def command(
    data_dir: Path | None, port: int | None, public_url: str | None, no_demo: bool, reset: bool, yes: bool,
    detach: bool, verbose: bool, as_json: bool,
) -> int:  # fmt: skip
    """Start the whole platform on this machine and print one link to sign in.

    PostgreSQL, Valkey, the web server and the workers; Ctrl-C or `forebay down` stops them. DATABASE_URL,
    BROKER_URL and RAY_ADDRESS replace the parts that are otherwise started here.
    """
    data = find_data_directory(data_dir)
    options = Options(
        port=port, public_url=_checked(public_url), demo=not no_demo, reset=reset, verbose=verbose
    )
    if reset and not yes:
        _confirm_reset(data)
    try:
        given = given_addresses(os.environ)
        given.check()
        if detach:
            _report(run_detached(data, options), as_json)
        else:
            run_here(data, given, options, on_ready=lambda runtime: _report(runtime, as_json), say=say)
    except AlreadyRunning as error:
        if as_json:
            emit_json(
                {"running": True, "url": error.url, "login_url": error.login_url, "data_dir": str(data.path)}
            )
        link = f"; to sign in once more: {error.login_url}" if error.login_url else ""
        raise CommandError(f"{error}{link}", Exit.CONFLICT) from None
    except BadSetting as error:
        raise BadInput(str(error)) from None
    except SupervisorError as error:
        raise CommandError(str(error), Exit.FAILED) from None
    return Exit.SUCCESS


def _report(runtime: Runtime, as_json: bool) -> None:
    if as_json:
        emit_json(
            {
                "running": True,
                "url": runtime.url,
                "login_url": runtime.login_url,
                "data_dir": runtime.data_dir,
            }
        )
        return
    say(f"Forebay runs; its data is in {runtime.data_dir}. Open this link to sign in (it works once):")
    click.echo(runtime.login_url)
    sys.stdout.flush()


def _checked(public_url: str | None) -> str | None:
    if public_url is None:
        return None
    parts = urlsplit(public_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise BadInput(
            f"--public-url is '{public_url}': it must be an address such as https://forebay.example.org"
        )
    return public_url.rstrip("/")


def _confirm_reset(data: DataDirectory) -> None:
    if not sys.stdin.isatty():
        raise BadInput("--reset deletes all data and asks first; without a terminal add --yes")
    click.confirm(f"Delete all studies, models and settings in {data.path}?", abort=True, err=True)
