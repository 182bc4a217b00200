"""`forebay export`: a job's trials as a file."""

from pathlib import Path

import click

from forebay.cli.errors import BadInput, Exit
from forebay.cli.output import emit_json, say
from forebay.cli.server import job_of, server_options
from forebay.client import Client


@click.command("export")
@click.argument("job_id", metavar="JOB")
@click.option("--format", "format_", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True)
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
              help="The file to write, - for standard output.")  # fmt: skip
@server_options
def command(job_id: str, format_: str, out: Path, url: str | None, token: str | None, as_json: bool) -> int:
    """Export a job's trials as CSV or Parquet, one column per hyperparameter."""
    if str(out) == "-" and as_json:
        raise BadInput("--json: standard output is taken by --out -")
    with Client(url, token) as client:
        job = job_of(client, job_id)
        if str(out) == "-":
            click.echo(client.transport.fetch(f"/api/v1/jobs/{job.id}/trials.{format_}"), nl=False)
            return Exit.SUCCESS
        try:
            job.export(out, format_)
        except OSError as error:
            raise BadInput(f"--out {out}: {error.strerror}") from None
    size = out.stat().st_size
    if as_json:
        emit_json({"job": job.id, "file": str(out), "format": format_, "bytes": size})
    else:
        say(f"wrote {out} ({size:,} bytes)")
    return Exit.SUCCESS
