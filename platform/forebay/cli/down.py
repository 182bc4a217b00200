"""`forebay down`: stop the platform of this machine."""

from pathlib import Path

import click

from forebay.cli.errors import CommandError, Exit
from forebay.cli.output import emit_json, say
from forebay.supervisor.directory import find_data_directory
from forebay.supervisor.errors import SupervisorError
from forebay.supervisor.stopping import stop_platform


@click.command("down")
@click.option("--data-dir", type=click.Path(path_type=Path), help="The data directory it was started with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(data_dir: Path | None, as_json: bool) -> int:
    """Stop the platform, or what is left of one whose supervisor was killed. Data stays."""
    data = find_data_directory(data_dir)
    try:
        outcome = stop_platform(data, say)
    except PermissionError as error:
        raise CommandError(f"{error.filename} is not readable for you", Exit.NOT_ALLOWED) from None
    except SupervisorError as error:
        raise CommandError(str(error), Exit.FAILED) from None
    if as_json:
        emit_json({"outcome": outcome, "data_dir": str(data.path)})
    else:
        say(outcome)
    return Exit.SUCCESS
