"""What every command that talks to a server shares: options, the client, exit codes."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import click

from forebay.cli.errors import BadInput, CommandError, Exit
from forebay.client import ApiError, Client, Job, JobTimeout, Unreachable
from forebay.job_files import BadJobFile
from forebay.servers import BadAddress, NoServer, NoToken

# What a refusal means to a script.
EXITS = {
    401: Exit.NOT_ALLOWED,
    403: Exit.NOT_ALLOWED,
    **dict.fromkeys((409, 412, 422, 428), Exit.CONFLICT),
    429: Exit.UNREACHABLE,
}


def server_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --url, --token and --json, and turn every error into its exit code."""

    @click.option(
        "--url", metavar="URL", help="The server (else FOREBAY_URL, the last login, or the one here)."
    )
    @click.option("--token", metavar="TOKEN", help="An API token (else FOREBAY_TOKEN, the last login, ...).")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with translated():
            return function(*args, **kwargs)

    return wrapped


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of the client into sentences with an exit code."""
    try:
        yield
    except BadJobFile as error:
        raise BadInput(str(error)) from None
    except BadAddress as error:
        raise BadInput(str(error)) from None
    except NoToken as error:
        raise CommandError(str(error), Exit.NOT_ALLOWED) from None
    except (NoServer, Unreachable) as error:
        raise CommandError(str(error), Exit.UNREACHABLE) from None
    except JobTimeout as error:
        raise CommandError(str(error), Exit.TIMED_OUT) from None
    except ApiError as error:
        raise CommandError(str(error), EXITS.get(error.status, Exit.USAGE)) from None


def job_of(client: Client, job_id: str) -> Job:
    """Return a job by the id that a person typed."""
    return client.job(checked_id(job_id))


def checked_id(text: str, argument: str = "JOB", thing: str = "a job") -> str:
    """Return an id in its usual form; raise BadInput for what is none."""
    try:
        return str(UUID(text))
    except ValueError:
        raise BadInput(f"{argument}: '{text}' is not the id of {thing}") from None
