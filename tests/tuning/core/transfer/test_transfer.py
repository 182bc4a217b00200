"""Eager Transfer's rule, and the figures that say how well surrogates rank."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from tuning.core.transfer import Standing, best_first, eager_target, fidelity, spearman, superseded


def test_a_lucky_early_value_does_not_beat_a_trained_trial() -> None:
    standings = [
        Standing(0, 0.99, 3, False),
        Standing(1, 0.90, 20, True),
        Standing(2, 0.95, 9, False),
        Standing(3, None, 20, True),
        Standing(4, 0.90, 20, True),
    ]
    assert best_first(standings, "max") == [1, 4, 2, 0]
    assert best_first([Standing(0, 0.5, 1, True), Standing(1, 0.0, 1, True)], "min") == [1, 0]


def test_the_leader_gets_an_eager_target_once_enough_trials_have_ended() -> None:
    assert eager_target([7, 3], finished=4, total=10, fraction=0.5, started=[]) is None
    assert eager_target([7, 3], finished=5, total=10, fraction=0.5, started=[]) == 7
    assert eager_target([7, 3], finished=6, total=10, fraction=0.5, started=[7]) is None
    assert eager_target([7, 3], finished=9, total=10, fraction=1, started=[]) is None
    assert eager_target([], finished=9, total=10, fraction=0.5, started=[]) is None


def test_targets_outside_the_best_are_superseded_the_worst_first() -> None:
    assert superseded([5, 4, 3, 2, 1], running=[4, 2, 1], top_k=2) == [1, 2]
    assert superseded([5, 4], running=[5, 4], top_k=3) == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=20))
def test_spearman_agrees_with_scipy(pairs: list[tuple[int, int]]) -> None:
    left, right = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    ours = spearman(left, right)
    if ours is None:
        assert len(set(left)) == 1 or len(set(right)) == 1
    else:
        assert ours == pytest.approx(spearmanr(left, right).statistic)


def test_fidelity_counts_overlap_and_regret() -> None:
    surrogate = {0: 0.9, 1: 0.8, 2: 0.7, 3: 0.1}
    full = {0: 0.95, 1: 0.99, 2: 0.5, 3: 0.2, 9: 1.0}
    found = fidelity(surrogate, full, "max", top_k=2)
    assert (found.configurations, found.overlap) == (4, 1.0)
    assert found.regret_top_1 == pytest.approx(0.04)
    assert found.regret_top_k == 0.0
    assert found.spearman == pytest.approx(0.8)


def test_diverged_models_rank_last_and_never_count_as_regret() -> None:
    found = fidelity({0: 1.0, 1: 2.0}, {0: math.nan, 1: 3.0}, "min", top_k=1)
    assert (found.overlap, found.regret_top_1, found.spearman) == (0.0, None, None)
    assert fidelity({}, {}, "max").regret_top_1 is None
