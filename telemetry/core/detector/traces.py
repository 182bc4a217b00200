"""Operation traces (the layout of ByteDance's StragglerAnalysis) as steps that the detector understands."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from telemetry.core.detector.samples import StepBatch
from telemetry.core.detector.verdicts import Evidence, Verdict, VerdictKind
from telemetry.core.errors import MalformedTrace

KINDS = ("forward-compute", "backward-compute")
Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class OperationTrace:
    """Operations in columns; `kind` is an index into KINDS, or -1 for what is no computation. Seconds."""

    replica: Indices
    stage: Indices
    rank: Indices
    step: Indices
    kind: Indices
    start_s: Array
    duration_s: Array


@dataclass(frozen=True)
class StepTable:
    """One row for each step and rank: seconds of each of KINDS, and from first start to last end."""

    step: Indices
    rank: Indices
    replica: Indices
    stage: Indices
    kinds_s: Array
    wall_s: Array


def step_table(trace: OperationTrace) -> StepTable:
    """Sum a trace's computations by step and rank. Raises MalformedTrace where there are none."""
    if not (trace.kind >= 0).any():
        raise MalformedTrace(f"optype: none of the rows is {' or '.join(KINDS)}")
    pairs, row = np.unique(np.stack([trace.step, trace.rank]), axis=1, return_inverse=True)
    row = row.reshape(-1)
    size = pairs.shape[1]
    kinds_s = np.zeros((size, len(KINDS)))
    computes = trace.kind >= 0
    np.add.at(kinds_s, (row[computes], trace.kind[computes]), trace.duration_s[computes])
    start, end = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(start, row, trace.start_s)
    np.maximum.at(end, row, trace.start_s + trace.duration_s)
    replica, stage = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    replica[row], stage[row] = trace.replica, trace.stage
    return StepTable(pairs[0], pairs[1], replica, stage, kinds_s, end - start)


def batches(table: StepTable) -> Iterator[StepBatch]:
    """Yield the table's steps in order."""
    for step in np.unique(table.step):
        rows = table.step == step
        compute_s = table.kinds_s[rows].sum(axis=1)
        absent = np.full(len(compute_s), np.nan)
        where = table.rank[rows], table.replica[rows], table.stage[rows]
        yield StepBatch(int(step), *where, compute_s, absent, table.wall_s[rows], absent, absent)


def refine(verdict: Verdict, table: StepTable) -> None:
    """Report the kind of computation that is slowed down most, with a row of evidence for each kind."""
    subject = verdict.subject
    since = table.step >= (verdict.first_step or 0)
    if verdict.kind == VerdictKind.DEVICE_FAIL_SLOW:
        mine = since & (table.rank == subject.rank)
        others = since & (table.stage == subject.stage) & ~mine
    elif verdict.kind == VerdictKind.STAGE_IMBALANCE:
        mine = since & (table.stage == subject.stage)
        others = since & ~mine
    else:
        return
    for number, name in enumerate(KINDS):
        own, usual = table.kinds_s[mine, number], table.kinds_s[others, number]
        if len(own) and len(usual) and np.median(usual) > 0:
            ratio = float(np.median(own) / np.median(usual))
            verdict.evidence.append(Evidence(name.replace("-", "_"), ratio, 1.15, len(own)))
            verdict.slowdown = max(verdict.slowdown or ratio, ratio)
