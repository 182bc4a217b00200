"""Comparisons of one step: leave-one-out medians against the plain definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.core.detector.comparison import against_peers, against_stages, against_usual, lower_median
from telemetry.core.detector.fleet import mean_by, others_median
from telemetry.core.detector.sequential import LIMIT

values = st.lists(st.floats(-3, 3), min_size=2, max_size=12)


@given(values)
def test_the_median_of_the_others_is_what_it_says(found):
    array = np.array(found)
    plain = [np.median(np.delete(array, index)) for index in range(len(array))]
    assert others_median(array) == pytest.approx(plain)


def test_a_lone_series_has_no_others():
    assert np.isnan(others_median(np.array([1.0]))).all()


def test_peers_need_three_present_cells_of_one_stage():
    value = np.array([0.0, 0.0, 0.5, 1.0, np.nan, 2.0])
    stage = np.array([0, 0, 0, 1, 1, 1])
    found = against_peers(value, stage)
    assert found[:3] == pytest.approx([-0.25, -0.25, 0.5])
    assert np.isnan(found[3:]).all()


def test_of_two_that_part_the_one_that_stayed_is_not_blamed():
    assert against_usual(np.array([0.0, -0.4])) == pytest.approx([0.0, -0.4])
    assert against_usual(np.array([0.0, 0.4])) == pytest.approx([-0.4, 0.4])


def test_half_a_fleet_does_not_move_the_lower_median():
    assert lower_median(np.array([0.0, 0.0, 0.5, 0.5])) == 0.0
    assert math.isnan(lower_median(np.array([np.nan])))


@pytest.mark.parametrize(("ratio", "above"), [(1.5, False), (1.8, True)])
def test_two_stages_are_imbalanced_only_by_a_quarter_of_their_mean(ratio, above):
    assert bool(against_stages(np.log([1.0, ratio])).max() > LIMIT) is above


def test_means_by_index_leave_gaps():
    found = mean_by(np.array([0, 0, 2]), np.array([1.0, 3.0, 5.0]), 4)
    assert found[[0, 2]] == pytest.approx([2.0, 5.0])
    assert np.isnan(found[[1, 3]]).all()
