"""The break-even model of torch.compile: it pays where more is saved than spent, or not at all."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tuning.core.containers import (
    CompileRules,
    break_even_steps,
    expected_compile_s,
    judge,
    worth_trying,
)

SECONDS = st.floats(1e-6, 1e3)
RULES = st.builds(
    CompileRules,
    margin=st.floats(1.0, 10.0),
    best_saving=st.floats(0.0, 0.9),
    least_saving=st.floats(0.0, 0.5),
)
PLAIN = CompileRules(margin=1.0, least_saving=0.0)


@pytest.mark.parametrize(
    ("eager_s", "compiled_s", "compile_s", "steps"),
    [
        (
            0.10,
            0.09,
            20.0,
            2000,
        ),  # Hydro's figures: two epochs of 100 steps, a tenth of a step, twenty epochs
        (0.10, 0.05, 10.0, 200),
        (0.10, 0.05, 0.0, 0),
        (0.10, 0.10, 1.0, None),
        (0.10, 0.20, 1.0, None),
    ],
)
def test_the_break_even_point_is_the_cost_over_the_gain_of_a_step(
    eager_s: float, compiled_s: float, compile_s: float, steps: int | None
) -> None:
    found = break_even_steps(eager_s, compiled_s, compile_s)
    assert found == steps or (steps is not None and found == steps + 1)  # a float's last digit


@pytest.mark.parametrize(
    ("compiled_s", "steps_left", "pays"),
    [(0.05, 201, True), (0.05, 199, False), (0.05, 0, False), (0.1, 10**9, False), (0.2, 10**9, False)],
)
def test_compiling_pays_from_the_break_even_point_on(compiled_s: float, steps_left: int, pays: bool) -> None:
    assert judge(0.1, compiled_s, 10.0, steps_left, PLAIN).pays is pays


def test_the_margin_asks_for_a_multiple_of_the_cost() -> None:
    cautious = CompileRules(margin=2.0, least_saving=0.0)
    assert not judge(0.1, 0.05, 10.0, 399, cautious).pays
    assert judge(0.1, 0.05, 10.0, 401, cautious).pays


def test_a_gain_within_the_noise_is_none_although_nothing_is_left_to_spend() -> None:
    rules = CompileRules(least_saving=0.03)
    assert not judge(0.100, 0.098, 0.0, 10**6, rules, compile_s=10.0).pays
    kept = judge(0.100, 0.090, 0.0, 100, rules, compile_s=10.0)
    assert kept.pays
    assert (
        kept.reason
        == "a compiled step saves 10 ms of 100 ms; 100 steps are left, and it breaks even after 1000"
    )


@given(SECONDS, SECONDS, SECONDS, st.integers(0, 10**6), RULES)
def test_it_never_says_yes_where_compiling_takes_longer(
    eager_s: float, compiled_s: float, ahead_s: float, steps: int, rules: CompileRules
) -> None:
    assume(judge(eager_s, compiled_s, ahead_s, steps, rules).pays)
    without, with_compiling = steps * eager_s, rules.margin * ahead_s + steps * compiled_s
    assert with_compiling <= without * (1 + 1e-9)


@given(SECONDS, SECONDS, SECONDS, st.integers(0, 10**6), st.integers(1, 10**6), RULES)
def test_what_pays_for_some_steps_pays_for_more(
    eager_s: float, compiled_s: float, ahead_s: float, steps: int, more: int, rules: CompileRules
) -> None:
    assume(judge(eager_s, compiled_s, ahead_s, steps, rules).pays)
    assert judge(eager_s, compiled_s, ahead_s, steps + more, rules).pays


@given(SECONDS, st.floats(0.0, 1.0), SECONDS, st.integers(0, 10**6), RULES)
def test_nothing_that_would_pay_is_left_untried_within_the_best_saving(
    eager_s: float, saving: float, compile_s: float, steps: int, rules: CompileRules
) -> None:
    assume(saving <= rules.best_saving)
    measured = judge(eager_s, eager_s * (1 - saving), compile_s, steps, rules)
    assert worth_trying(eager_s, compile_s, steps, rules).pays or not measured.pays


def test_a_short_run_is_not_worth_trying_and_says_why() -> None:
    found = worth_trying(0.041, 14.0, 320, CompileRules(best_saving=0.2))
    assert not found.pays
    assert found.reason == (
        "of 13.1 s that are left at most 2.6 s could be saved; compiling takes about 14.0 s"
    )


@pytest.mark.parametrize(
    ("same", "others", "remembered", "seconds"),
    [
        ([], [], None, 20.0),
        ([], [], 7.0, 7.0),
        ([], [3.0, 9.0], 7.0, 9.0),
        ([12.0], [3.0], 7.0, 3.0),  # a quarter: its kernels are in the cache
        ([12.0, 1.5], [30.0], 7.0, 1.5),
    ],
)
def test_the_expected_cost_follows_the_nearest_measurement(
    same: list[float], others: list[float], remembered: float | None, seconds: float
) -> None:
    assert expected_compile_s(same, others, remembered) == seconds


def test_a_process_that_has_compiled_before_repeats_it_sooner() -> None:
    assert expected_compile_s([12.0], [], None, loaded=True) < expected_compile_s([12.0], [], None)
