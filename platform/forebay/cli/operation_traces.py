"""Parquet traces of operations, from a file to verdicts."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.cli.errors import BadInput
from forebay.cli.step_logs import report
from telemetry.core.detector import Detector, Verdict
from telemetry.core.detector.traces import KINDS, OperationTrace, batches, refine, step_table
from telemetry.core.errors import MalformedTrace

if TYPE_CHECKING:
    import pyarrow

WHOLE, REAL = ("dp_rank", "stage", "rank", "step"), ("start_ts", "duration")


def detect_in_trace(path: Path) -> tuple[list[Verdict], dict[str, Any]]:
    """Read a trace and judge it; the slowdown reported is that of the kind of computation slowed most."""
    detector = Detector()
    trace, dropped = read_trace(path)
    detector.intake.non_finite += dropped
    table = step_table(trace)
    for batch in batches(table):
        detector.update(batch)
    verdicts = detector.verdicts()
    for verdict in verdicts:
        refine(verdict, table)
    return report(detector, verdicts)


def read_trace(path: Path) -> tuple[OperationTrace, int]:
    """Return a parquet file's operations and how many were dropped for a time that is none."""
    columns = _columns(path)
    times = {name: _numbers(columns, name) for name in REAL}
    identity = {name: _numbers(columns, name) for name in WHOLE}
    fine = np.isfinite(times["start_ts"]) & np.isfinite(times["duration"]) & (times["duration"] >= 0)
    for name, values in identity.items():
        if not (np.isfinite(values) & (values >= 0) & (values == np.floor(values))).all():
            raise MalformedTrace(f"{name} must hold whole numbers of at least 0")
    names = np.array(columns.column("optype").cast("string").to_pylist(), dtype=object)
    kind = np.full(len(names), -1, dtype=np.int64)
    for index, name in enumerate(KINDS):
        kind[names == name] = index
    replica, stage, rank, step = (identity[name][fine].astype(np.int64) for name in WHOLE)
    start_s, duration_s = times["start_ts"][fine], times["duration"][fine]
    return OperationTrace(replica, stage, rank, step, kind[fine], start_s, duration_s), int((~fine).sum())


def _columns(path: Path) -> "pyarrow.Table":
    import pyarrow
    from pyarrow import parquet

    needed = [*WHOLE, "optype", *REAL]
    try:
        present = parquet.read_schema(path).names
        missing = [name for name in needed if name not in present]
        if missing:
            raise MalformedTrace(f"the columns {', '.join(missing)} are missing")
        return parquet.read_table(path, columns=needed)
    except pyarrow.ArrowException as error:
        raise BadInput(f"{path}: is not a parquet file: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or str(error).splitlines()[0]}") from None


def _numbers(columns: "pyarrow.Table", name: str) -> np.ndarray:
    import pyarrow

    try:
        return np.asarray(columns.column(name).cast("float64").to_numpy(), dtype=np.float64)
    except (pyarrow.ArrowException, ValueError, TypeError):
        raise MalformedTrace(f"{name} must hold numbers") from None
