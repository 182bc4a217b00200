"""What may be judged, what is counted instead."""

import math

import numpy as np
import pytest

from telemetry.core.detector import sample_from
from telemetry.core.detector.intake import Intake
from telemetry.core.detector.samples import StepBatch, batch_of
from telemetry.core.errors import MalformedLine

GOOD = {"step": 1, "rank": 0, "node": "n0", "replica": 0, "stage": 0, "compute_s": 0.4}


def batch(compute, wait=None, wall=None):
    size = len(compute)
    rank, zeros = np.arange(size), np.zeros(size, dtype=np.int64)
    absent = np.full(size, np.nan)
    given = [absent if each is None else np.array(each) for each in (wait, wall)]
    return StepBatch(0, rank, zeros, zeros, np.array(compute), *given, absent, absent)


@pytest.mark.parametrize(
    ("name", "value"),
    [("compute_s", None)]
    + [
        (name, value)
        for name in ("compute_s", "wall_s")
        for value in (math.nan, math.inf, 0, -1.0, 1e300, 5e-324, 10**400)
    ],
)
def test_a_duration_that_is_none_drops_the_sample_and_is_counted(name, value):
    intake = Intake()
    assert len(intake.clean(batch_of(1, [sample_from({**GOOD, name: value})]))) == 0
    assert (intake.non_finite, intake.unit, intake.coverage) == (1, 0, 0.0)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"step": None}, "step"),
        ({"step": 1.5}, "step"),
        ({"rank": -1}, "rank"),
        ({"rank": True}, "rank"),
        ({"rank": 1e300}, "rank"),
        ({"replica": "0"}, "replica"),
        ({"stage": math.nan}, "stage"),
        ({"tag": "trian"}, "tag"),
        ({"tag": ["train"]}, "tag"),
        ({"node": 5}, "node"),
        ({"compute_s": "0.4"}, "compute_s"),
        ({"tokens": [1]}, "tokens"),
    ],
)
def test_a_line_that_is_no_sample_is_refused_by_field(change, field):
    with pytest.raises(MalformedLine, match=field):
        sample_from({**GOOD, **change})


def test_tagged_steps_and_unknown_keys_are_left_out():
    samples = [
        sample_from({**GOOD, "tag": tag, "gpu": "x"})
        for tag in ("warmup", "checkpoint", "evaluation", "train")
    ]
    assert len(batch_of(1, samples)) == 1


@pytest.mark.parametrize(
    ("compute", "wall", "off"),
    [
        ([0.4, 0.41, 0.39, 400.0], None, [3]),
        ([0.4, 0.41, 0.39, 4e5], None, [3]),
        ([0.4, 0.41, 0.39, 0.0004], None, [3]),
        ([0.4, 400.0], None, [1]),
        ([400.0, 0.4], [0.5, 0.5], [0]),
        ([0.0004, 0.4], [0.5, 0.5], [0]),
        ([400.0, 410.0, 0.4], [0.5, 0.5, 0.5], [0, 1]),
        ([400.0, 410.0], [0.5, 0.5], []),
        ([0.4, 0.4, 4.0], None, []),
        ([0.4, 0.4, 40.0], None, []),
    ],
)
def test_samples_off_by_a_unit_are_told_from_slow_ones(compute, wall, off):
    intake = Intake()
    intake.clean(batch(compute, wall=wall))
    assert sorted(intake.unit_ranks) == off


def test_a_wait_longer_than_its_step_is_unusable_and_one_in_milliseconds_a_unit_error():
    intake = Intake()
    assert intake.clean(batch([0.4, 0.4, 0.4], wait=[0.1, 0.5, 100.0])).rank.tolist() == [0]
    assert (intake.non_finite, intake.unit) == (1, 1)
