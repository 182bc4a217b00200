"""The three public traces with known causes."""

import numpy as np
import pytest

from telemetry.core.detector import Detector
from telemetry.core.detector.traces import OperationTrace, batches, step_table
from telemetry.core.errors import MalformedTrace


def trace(kind, duration=1.0, rows=3):
    zeros = np.zeros(rows, dtype=np.int64)
    kinds, durations = np.full(rows, kind, dtype=np.int64), np.full(rows, duration)
    return OperationTrace(zeros, zeros, zeros, np.arange(rows) // 2, kinds, np.arange(rows) * 1.0, durations)


def test_operations_are_summed_by_step_and_rank():
    table = step_table(trace(0))
    assert table.step.tolist() == [0, 1]
    assert table.kinds_s.tolist() == [[2.0, 0.0], [1.0, 0.0]]
    assert table.wall_s.tolist() == [2.0, 1.0]
    first, _ = batches(table)
    assert (first.step, first.compute_s.tolist(), first.wall_s.tolist()) == (0, [2.0], [2.0])


def test_a_trace_without_computation_is_refused():
    with pytest.raises(MalformedTrace, match="optype"):
        step_table(trace(-1))


def test_operations_without_duration_are_counted_as_unusable():
    detector = Detector()
    for batch in batches(step_table(trace(0, duration=0.0))):
        detector.update(batch)
    assert detector.intake.non_finite == 2
