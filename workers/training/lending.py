"""What makes the ranks of a training job lend their bubbles."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from jobs.models import Job
from workers.squeezer.lender import Lender, make_lender

OURS = re.compile(r"job-(?P<job>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(?P<rank>[0-9]{1,6})")


def board_name(job_id: UUID | str, rank: int) -> str:
    """The name of a rank's board."""
    return f"job-{job_id}-{rank}"


def lender_of(name: str) -> str | None:
    """The id of the job that lends by a board; None for a board of somebody's own pipeline."""
    found = OURS.fullmatch(name)
    return found["job"] if found else None


def rank_of(name: str) -> int | None:
    """The rank of the job that lends by a board; None for a board of somebody's own pipeline."""
    found = OURS.fullmatch(name)
    return int(found["rank"]) if found else None


def with_boards(job: Job, devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a job's ranks, each with the name of its board where the job lends its bubbles."""
    if not job.spec.get("lend_bubbles"):
        return devices
    return [{**row, "board": board_name(job.pk, row["rank"])} for row in devices]


def lenders_of(devices: list[dict[str, Any]]) -> Callable[[int], Callable[[], Lender] | None]:
    """Return, for a plan rank, what makes its lender in the rank's own process; None where it lends nothing.

    A row has `kind`, `index` and, where the rank lends, `board`; a rank on a core keeps to it.
    """

    def hook_of(rank: int) -> Callable[[], Lender] | None:
        row = devices[rank]
        if "board" not in row:
            return None
        return partial(make_lender, row["board"], row["index"] if row["kind"] == "cpu" else -1, row["index"])

    return hook_of
