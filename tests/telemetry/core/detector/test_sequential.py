"""The sequential test: events are not states, noise sets its patience, recovery ends it."""

import numpy as np
import pytest

from telemetry.core.detector.sequential import CLEAR_STEPS, SETTLE, SequentialTest


def run(values):
    """Feed one row for each step; returns (step, index, 'raised' or 'cleared') in order."""
    test, events = SequentialTest(), []
    for step, row in enumerate(values):
        row = np.atleast_1d(np.asarray(row, dtype=float))
        test.grow(len(row))
        change = test.update(row, step)
        events += [(step, index, "raised") for index in change.raised]
        events += [(step, index, "cleared") for index in change.cleared]
    return test, events


@pytest.mark.parametrize("size", [0.5, 3.0, 10.0])
def test_one_extreme_sample_is_an_event_and_not_a_state(size):
    _, events = run([0.0] * 20 + [size] + [0.0] * 20)
    assert events == []


def test_a_lasting_shift_is_raised_after_three_samples_and_cleared_after_its_end():
    test, events = run([0.0] * 20 + [0.3] * 10 + [0.0] * 20)
    assert events == [(22, 0, "raised"), (30 + 2 + CLEAR_STEPS - 1, 0, "cleared")]
    assert test.since[0] == 20
    assert test.level[0] == pytest.approx(0.3)


def test_what_is_slow_from_the_start_is_raised_once_settled():
    _, events = run([0.9] * 20)
    assert events == [(SETTLE, 0, "raised")]


def test_noise_makes_the_test_patient():
    rng = np.random.default_rng(0)
    quiet, noisy = (0.22 + sigma * rng.standard_normal((80, 6)) for sigma in (0.01, 0.08))
    before = [np.zeros(6)] * 3
    first = {index: step for step, index, _ in reversed(run([*before, *quiet])[1])}
    later = {index: step for step, index, _ in reversed(run([*before, *noisy])[1])}
    assert max(first.values()) < min(later.values())


def test_absent_samples_change_nothing():
    _, events = run([0.0] * 30 + [0.3, np.nan, np.nan, 0.3, np.nan, 0.3] + [np.nan] * 5)
    assert events == [(35, 0, "raised")]


def test_a_noisy_series_is_held_to_its_own_noise():
    rng = np.random.default_rng(3)
    values = 0.01 * rng.standard_normal((2000, 8))
    values[:, 0] *= 30
    assert run(values)[1] == []
