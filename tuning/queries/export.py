"""Trials as files: CSV for spreadsheets, Parquet for data tools."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet

from jobs.models import Job
from tuning.models import Trial
from tuning.queries.trials import CONFIG, config_names, trial_row

COLUMNS = ("trial", "state", "reason", "metric", "epochs", "device_seconds", "started_s", "ended_s")
# What a spreadsheet takes for the beginning of a formula (OWASP, CSV injection).
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def trials_csv(job: Job, trials: QuerySet[Trial]) -> bytes:
    """Return trials as CSV in UTF-8, one column per hyperparameter, numbers as they are."""
    names = config_names(job)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([cell(column) for column in (*COLUMNS, *(CONFIG + name for name in names))])
    for row in _rows(trials):
        writer.writerow([cell(row[c]) for c in COLUMNS] + [cell(row["config"].get(n)) for n in names])
    return text.getvalue().encode()


def trials_parquet(job: Job, trials: QuerySet[Trial]) -> bytes:
    """Return trials as Parquet; a hyperparameter with values of several types becomes JSON texts."""
    import pyarrow
    import pyarrow.parquet

    types = {
        "trial": pyarrow.int64(),
        "epochs": pyarrow.int64(),
        "state": pyarrow.string(),
        "reason": pyarrow.string(),
    }
    rows = list(_rows(trials))
    columns = {
        name: pyarrow.array([row[name] for row in rows], types.get(name, pyarrow.float64()))
        for name in COLUMNS
    }
    for name in config_names(job):
        columns[CONFIG + name] = _array([row["config"].get(name) for row in rows])
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink, compression="zstd")
    return sink.getvalue()


def cell(value: Any) -> str | int | float:
    """Return a value as a cell; a text that would run as a formula is quoted by an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _rows(trials: QuerySet[Trial]) -> Iterator[dict[str, Any]]:
    for trial in trials.order_by("number").defer("curve", "log").iterator(chunk_size=2000):
        yield trial_row(trial)


def _array(values: list[Any]) -> Any:
    import pyarrow

    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return pyarrow.array(
            values, pyarrow.int64() if kinds == {int} else pyarrow.float64(), from_pandas=False
        )
    if len(kinds) == 1 and kinds <= {str, bool}:
        return pyarrow.array(values)
    return pyarrow.array([None if value is None else json.dumps(value) for value in values], pyarrow.string())
