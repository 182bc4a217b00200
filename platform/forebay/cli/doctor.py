"""`forebay doctor`: what is wrong with this machine, and what to do."""

from pathlib import Path

import click

from forebay.cli.errors import CommandError, Exit
from forebay.cli.output import emit_json
from forebay.supervisor.directory import find_data_directory
from forebay.supervisor.doctor import Finding, examine
from forebay.supervisor.doctor.finding import Level
from forebay.supervisor.errors import SupervisorError

MARKS = {Level.OK: "ok  ", Level.WARNING: "WARN", Level.BLOCKS: "STOP"}
COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.BLOCKS: "red"}


@click.command("doctor")
@click.option("--data-dir", type=click.Path(path_type=Path), help="The data directory to look at.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port you mean to use.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(data_dir: Path | None, port: int | None, as_json: bool) -> int:
    """Examine this machine; one line each, with what to do. Exit code 1 if something blocks."""
    try:
        found = examine(find_data_directory(data_dir), port)
    except SupervisorError as error:
        raise CommandError(str(error), Exit.FAILED) from None
    is_well = all(finding.level != Level.BLOCKS for finding in found)
    if as_json:
        rows = [vars(finding) for finding in found]
        emit_json({"ok": is_well, "checks": rows})
    else:
        for finding in found:
            _print(finding)
        click.echo("Forebay can run here." if is_well else "Forebay cannot run here yet; see STOP above.")
    return Exit.SUCCESS if is_well else Exit.FAILED


def _print(finding: Finding) -> None:
    mark = click.style(MARKS[finding.level], fg=COLOURS[finding.level])
    advice = f" -> {finding.advice}" if finding.advice else ""
    click.echo(f"{mark} {finding.name}: {finding.detail}{advice}")
