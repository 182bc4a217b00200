"""ASHA against a direct reading of its rule, and its edges: ties, non-finite results, replays."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from tuning.core.halving import Ladder, ranked, rung_epochs

values = st.one_of(st.none(), st.just(math.nan), st.integers(0, 4).map(float))


def test_rungs_are_spaced_by_the_reduction_and_end_before_the_last_epoch() -> None:
    assert rung_epochs(3, 3, 20) == (3, 9)
    assert rung_epochs(1, 2, 8) == (1, 2, 4)
    assert rung_epochs(3, 3, 3) == ()
    assert rung_epochs(5, 3, 2) == ()


def test_nine_equal_results_keep_exactly_three_the_first_ones() -> None:
    ladder = Ladder((3,), 3, "max")
    for trial in range(9):
        ladder.record(3, trial, 0.1)
    assert ladder.survivors(3, list(range(9))) == {0, 1, 2}


def test_non_finite_results_come_last_and_the_first_arrival_goes_on() -> None:
    ladder = Ladder((1,), 3, "min")
    ladder.record(1, 4, math.nan)
    assert ladder.goes_on(1, 4)
    ladder.record(1, 7, 0.0)
    assert not ladder.goes_on(1, 4)
    assert ladder.goes_on(1, 7)


@given(st.lists(values, min_size=1, max_size=30), st.integers(2, 4), st.sampled_from(["max", "min"]))
def test_a_trial_goes_on_exactly_while_its_rank_allows_it(
    results: list[float | None], reduction: int, mode: str
) -> None:
    ladder = Ladder((1,), reduction, mode)
    for trial, value in enumerate(results):
        ladder.record(1, trial, value)
        ladder.record(1, trial, 99.0)  # a repeated report changes nothing
        finite = {t: v for t, v in enumerate(results[: trial + 1]) if v is not None and math.isfinite(v)}
        worse = (lambda a, b: a > b) if mode == "max" else (lambda a, b: a < b)
        if trial in finite:
            mine = finite[trial]
            rank = 1 + sum(worse(v, mine) or (v == mine and t < trial) for t, v in finite.items())
        else:
            rank = 1 + len(finite) + sum(t not in finite for t in range(trial))
        assert ladder.goes_on(1, trial) == (rank <= max(1, (trial + 1) // reduction))


def test_the_promotion_form_promotes_each_trial_once_and_at_least_one_of_a_closed_rung() -> None:
    ladder = Ladder((1, 3), 3, "max")
    ladder.record(1, 0, 0.5)
    ladder.record(1, 1, 0.9)
    assert ladder.promotable(1, closed=False) == []
    assert ladder.promotable(1, closed=True) == [1]
    ladder.record(1, 2, 0.7)
    assert ladder.promotable(1, closed=False) == [1]
    ladder.promote(1, 1)
    assert ladder.promotable(1, closed=False) == []


def test_a_ladder_survives_json() -> None:
    ladder = Ladder((1, 3), 3, "max")
    ladder.record(1, 5, 0.5)
    ladder.record(1, 2, None)
    ladder.promote(1, 5)
    again = Ladder((1, 3), 3, "max")
    again.load_json(json.loads(json.dumps(ladder.to_json(), allow_nan=False)))
    assert again == ladder


def test_ranking_has_one_order_for_both_modes() -> None:
    results = {3: 0.0, 1: 0.5, 2: None, 0: math.inf}
    assert ranked(results, "min") == [3, 1, 0, 2]
    assert ranked(results, "max") == [1, 3, 0, 2]
