"""`forebay watch`: follow a job's events until it ends."""

import json
import time
from collections.abc import Iterator
from typing import Any

import click

from forebay.cli.output import emit_json
from forebay.cli.progress import outcome
from forebay.cli.server import job_of, server_options
from forebay.client import PATIENCE_S, Client, Job, JobTimeout, Unreachable

PAUSE_S = 1.0


@click.command("watch")
@click.argument("job_id", metavar="JOB")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events after this number.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS")
@server_options
def command(
    job_id: str, after: int, timeout_s: float | None, url: str | None, token: str | None, as_json: bool
) -> int:
    """Print a job's events as they come, one line each, until it ends.

    The exit code is that of `submit --wait`. With --json the events come in one document at the end.
    """
    with Client(url, token) as client:
        job = job_of(client, job_id)
        events: list[dict[str, Any]] = []
        try:
            for event in _follow(job, after, timeout_s):
                events.append(event) if as_json else click.echo(_line(event))
        finally:
            if as_json:
                emit_json({"job": job.data, "events": events})
        return outcome(job)


def _follow(job: Job, after: int, timeout_s: float | None) -> Iterator[dict[str, Any]]:
    started = heard = time.monotonic()
    while True:
        try:
            # The state is read before the events, so that the last look misses none.
            ended = job.refresh().ended
            for event in job.events(after):
                after = event["seq"]
                yield event
            heard = time.monotonic()
        except Unreachable:
            ended = False
            if time.monotonic() - heard > PATIENCE_S:
                raise
        if ended:
            return
        if timeout_s is not None and time.monotonic() - started > timeout_s:
            raise JobTimeout(job.id, timeout_s)
        time.sleep(PAUSE_S)


def _line(event: dict[str, Any]) -> str:
    return f"{event['seq']:6} {event['at'][11:19]} {event['kind']:20} {json.dumps(event['data'])[:200]}"
