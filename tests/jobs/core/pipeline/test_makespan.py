"""The 1F1B recurrence against the event simulator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.pipeline import (
    Durations,
    build_schedule,
    one_f_one_b_makespan,
    one_f_one_b_makespans,
    simulate,
)

stage_times = st.lists(st.tuples(st.floats(0.01, 9.0), st.floats(0.01, 9.0)), min_size=1, max_size=7)


@given(stage_times, st.integers(1, 60), st.sampled_from([0.0, 0.3, 5.0]))
def test_recurrence_equals_simulation(times, microbatches, transfer_s):
    forward_s, backward_s = [f for f, _ in times], [b for _, b in times]
    exact = simulate(
        build_schedule("1f1b", len(times), microbatches), Durations(forward_s, backward_s), transfer_s
    ).makespan
    assert one_f_one_b_makespan(forward_s, backward_s, microbatches, transfer_s) == pytest.approx(
        exact, rel=1e-11
    )
    together = one_f_one_b_makespans(
        np.array([forward_s, forward_s]).T, np.array([backward_s, forward_s]).T, microbatches, transfer_s
    )
    assert together[0] == pytest.approx(exact, rel=1e-12)
    assert together[1] == pytest.approx(one_f_one_b_makespan(forward_s, forward_s, microbatches, transfer_s))


def test_popular_formula_is_only_an_upper_bound_for_unequal_stages():
    forward_s = [1 / 3, 1 / 3, 0.5, 1.25 / 3, 1.25 / 3]
    backward_s = [2 * f for f in forward_s]
    assert one_f_one_b_makespan(forward_s, backward_s, 11) * 3 == pytest.approx(61.5)
    total = [f + b for f, b in zip(forward_s, backward_s, strict=True)]
    assert (sum(total) + 10 * max(total)) * 3 == pytest.approx(63.0)


@given(stage_times, st.integers(1, 20))
def test_makespan_never_falls_with_more_micro_batches(times, microbatches):
    forward_s, backward_s = [f for f, _ in times], [b for _, b in times]
    fewer = one_f_one_b_makespan(forward_s, backward_s, microbatches)
    assert one_f_one_b_makespan(forward_s, backward_s, microbatches + 1) >= fewer * (1 - 1e-12)


@pytest.mark.parametrize("microbatches", [10_000, 1_000_000])
def test_a_million_micro_batches_are_timed_in_one_step(microbatches):
    forward_s, backward_s = [1.0] * 8, [2.0] * 8
    assert one_f_one_b_makespan(forward_s, backward_s, microbatches) == 3.0 * (microbatches + 7)
    columns = np.full((8, 2), 1.0), np.full((8, 2), 2.0)
    assert one_f_one_b_makespans(*columns, microbatches).tolist() == [3.0 * (microbatches + 7)] * 2
