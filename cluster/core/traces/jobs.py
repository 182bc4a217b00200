"""Job traces: one row per job, checked, as columns."""

import math
from collections.abc import Mapping
from pathlib import Path

from cluster.core.errors import TraceError
from cluster.core.traces.columns import (
    cell,
    column_index,
    open_rows,
    read_count,
    read_seconds,
    rename_columns,
)
from cluster.core.workload import JobTable, job_table

COLUMNS = ("job_id", "submit_s", "num_gpus", "duration_s", "user", "deadline_s", "limit_s", "type")
REQUIRED = COLUMNS[:4]
SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "milliseconds": 1e-3}


def read_jobs(
    path: Path, *, renames: Mapping[str, str] | None = None, time_unit: str = "seconds"
) -> JobTable:
    """Read a trace with the columns `job_id, submit_s, num_gpus, duration_s` and what else of COLUMNS it has.

    Args:
        renames: our column name to the file's.
        time_unit: unit of every time in the file, a key of SECONDS.

    Raises:
        TraceError: a column is missing, there are no jobs, or a cell is wrong.
    """
    header, rows = open_rows(path)
    header = rename_columns(header, renames or {})
    at = {name: column_index(header, name, required=name in REQUIRED) for name in COLUMNS}
    if not rows:
        raise TraceError("file", "there are no jobs in it")
    scale = SECONDS[time_unit]
    parsed = [_read_row(row, number, at, scale) for number, row in enumerate(rows, start=1)]
    ids, submit, devices, duration, users, deadline, limit, kinds = (
        list(column) for column in zip(*parsed, strict=True)
    )
    return job_table(
        ids=ids,
        submit_s=submit,
        devices=devices,
        duration_s=duration,
        limit_s=limit,
        deadline_s=deadline,
        kinds=kinds,
        users=users,
    )


def _read_row(
    row: list[str], number: int, at: Mapping[str, int], scale: float
) -> tuple[str, float, int, float, str, float, float, str]:
    """Return one job; the deadline becomes absolute, an absent limit is the duration."""
    name = cell(row, at["job_id"])
    if not name:
        raise TraceError("job_id", "a value is needed", number)
    submit = read_seconds(cell(row, at["submit_s"]), "submit_s", number) * scale
    devices = read_count(cell(row, at["num_gpus"]), "num_gpus", number)
    duration = read_seconds(cell(row, at["duration_s"]), "duration_s", number) * scale
    deadline_text, limit_text = cell(row, at["deadline_s"]), cell(row, at["limit_s"])
    deadline = (
        submit + read_seconds(deadline_text, "deadline_s", number) * scale if deadline_text else math.inf
    )
    limit = read_seconds(limit_text, "limit_s", number) * scale if limit_text else duration
    return name, submit, devices, duration, cell(row, at["user"]), deadline, limit, cell(row, at["type"])


def repeated_ids(jobs: JobTable) -> list[str]:
    """Return the ids that more than one job has, in order of first use; each row stays a job of its own."""
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for name in jobs.ids:
        if name in seen:
            repeated[name] = None
        seen.add(name)
    return list(repeated)
