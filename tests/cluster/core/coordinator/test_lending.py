"""When a job goes on lending, stops by itself, and tries again."""

import random

import pytest

from cluster.core.coordinator import (
    LendingPolicy,
    Slowdown,
    decide_lending,
    is_control,
    measure_slowdown,
)

POLICY = LendingPolicy(limit=0.02, retry_s=300.0)


@pytest.mark.parametrize(
    ("slowdown", "action"),
    [
        (None, "keep"),
        (Slowdown(0.01, 0.005, 0.015, 90, 10), "keep"),
        (Slowdown(0.02, 0.01, 0.03, 90, 10), "keep"),
        (Slowdown(0.05, 0.03, 0.07, 90, 10), "stop"),
        (Slowdown(0.05, -0.01, 0.11, 90, 10), "keep"),
        (Slowdown(-0.02, -0.04, 0.00, 90, 10), "keep"),
    ],
)
def test_lending_stops_only_where_the_slowdown_is_large_and_certain(slowdown, action) -> None:
    decision = decide_lending(POLICY, slowdown, lending=True, switched_off=False)
    assert decision.action == action
    assert slowdown is None or f"{slowdown.value:+.2%}" in decision.reason


@pytest.mark.parametrize(
    ("lending", "switched_off", "stops", "now_s", "action"),
    [
        (True, True, 0, 0.0, "stop"),
        (False, True, 0, 0.0, "wait"),
        (False, False, 0, 0.0, "resume"),
        (False, False, 1, 1299.0, "wait"),
        (False, False, 1, 1300.0, "resume"),
        (False, False, 2, 1300.0, "wait"),
        (False, False, 2, 1600.0, "resume"),
        (False, False, 30, 8199.0, "wait"),
        (False, False, 30, 8200.0, "resume"),
    ],
)
def test_a_stop_lasts_longer_each_time_and_an_operators_until_undone(
    lending, switched_off, stops, now_s, action
) -> None:
    decision = decide_lending(
        POLICY,
        None,
        lending=lending,
        switched_off=switched_off,
        stops=stops,
        stopped_at_s=1000.0,
        now_s=now_s,
    )
    assert decision.action == action


def test_the_slowdown_is_found_within_its_interval() -> None:
    rng = random.Random(1)
    control = [rng.gauss(1.0, 0.02) for _ in range(40)]
    lent = [rng.gauss(1.1, 0.02) for _ in range(200)]
    found = measure_slowdown(lent, control)
    assert found is not None
    assert found.low < found.value < found.high
    assert found.low < 0.1 < found.high
    assert (found.lent, found.controls) == (200, 40)


def test_nothing_is_said_of_too_few_iterations() -> None:
    assert measure_slowdown([1.0] * 100, [1.0] * 19) is None
    assert measure_slowdown([1.0] * 19, [1.0] * 100) is None


def test_one_iteration_in_ten_is_left_alone() -> None:
    assert [number for number in range(30) if is_control(number)] == [9, 19, 29]


def test_of_the_first_hundred_one_in_five_so_that_the_slowdown_is_soon_known() -> None:
    early = [number for number in range(1000, 1100) if is_control(number, since=1000)]
    assert len(early) == 20
    assert {number for number in range(1000, 1100) if is_control(number)} < set(early)
    assert [number for number in range(1100, 1120) if is_control(number, since=1000)] == [1109, 1119]
