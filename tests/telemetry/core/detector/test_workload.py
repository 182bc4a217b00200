"""The workload model: exact on exact data, robust, and honest about what it cannot tell."""

import numpy as np
import pytest

from telemetry.core.detector.baseline import SETTLE
from telemetry.core.detector.workload import ENOUGH, StageModel, fit_workload


def samples(count, seed=0, noise=0.0, length=None):
    rng = np.random.default_rng(seed)
    tokens = rng.uniform(4e3, 8e3, count)
    sum_sq = tokens * (rng.uniform(100, 4000, count) if length is None else length)
    seconds = (0.01 + 2e-5 * tokens + 3e-9 * sum_sq) * np.exp(noise * rng.standard_normal(count))
    return np.stack([tokens, sum_sq, seconds], axis=1)


def test_exact_times_give_exact_coefficients():
    fit = fit_workload(samples(60))
    assert (fit.t0, fit.alpha, fit.beta) == pytest.approx((0.01, 2e-5, 3e-9), rel=1e-6)
    assert fit.mape < 1e-9


def test_a_slow_quarter_of_the_samples_neither_bends_the_fit_nor_its_error():
    rows = samples(400, noise=0.01)
    rows[::4, 2] *= 2.0
    fit = fit_workload(rows)
    assert fit.alpha == pytest.approx(2e-5, rel=0.05)
    assert fit.beta == pytest.approx(3e-9, rel=0.05)
    assert fit.mape < 0.02


def test_equal_lengths_leave_one_slope_and_say_so():
    fit = fit_workload(samples(60, length=512.0))
    assert "cannot be told apart" in fit.note
    assert fit.mape < 1e-6


def test_nothing_is_expected_of_varying_work_until_a_model_fits():
    model, rows = StageModel(0), samples(40, noise=0.01)
    for count, row in enumerate(rows, start=1):
        model.add(*(row[index : index + 1] for index in range(3)))
        if model.due:
            model.fit_again()
        if count > 1:
            assert np.isnan(model.log_factor(row[:1], row[1:2]))[0] == (count < SETTLE + 20)
    heavy = model.log_factor(np.array([8e3]), np.array([3.2e7])) - model.log_factor(
        np.array([4e3]), np.array([4e6])
    )
    assert heavy == pytest.approx(np.log((0.01 + 0.16 + 0.096) / (0.01 + 0.08 + 0.012)), rel=0.05)


def test_a_model_that_does_not_fit_is_refused():
    model, rng = StageModel(0), np.random.default_rng(4)
    for row in samples(ENOUGH + 8):
        seconds = np.array([rng.lognormal(-1, 0.5)])
        model.add(row[:1], row[1:2], seconds)
        if model.due:
            model.fit_again()
    assert model.refused
    assert model.log_factor(np.array([5e3]), np.array([5e6])) == pytest.approx([0.0])
