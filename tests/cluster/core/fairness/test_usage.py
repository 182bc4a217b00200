"""Decayed usage."""

import pytest

from cluster.core.fairness.usage import accrued, advance_usage, decayed


def test_half_is_left_after_a_half_life_and_nothing_changes_when_the_clock_jumps_back():
    assert decayed(100.0, 10.0, half_life_s=10.0) == 50.0
    assert decayed(100.0, -3600.0) == 100.0


def test_usage_over_time_is_the_limit_of_many_small_steps():
    steps = 10_000
    total = 0.0
    for _ in range(steps):
        total = decayed(total, 20.0 / steps, 10.0) + 3.0 * 20.0 / steps
    assert accrued(60.0, 20.0, 10.0) == pytest.approx(total, rel=1e-3)


def test_two_steps_are_one():
    once = advance_usage({"a": 5.0}, {"a": 2.0, "b": 1.0}, 30.0, 10.0)
    twice = advance_usage(
        advance_usage({"a": 5.0}, {"a": 2.0, "b": 1.0}, 10.0, 10.0), {"a": 2.0, "b": 1.0}, 20.0, 10.0
    )
    assert twice == pytest.approx(once)


def test_no_time_is_no_usage():
    assert advance_usage({}, {"a": 4.0}, -5.0) == {"a": 0.0}
