"""Searches: deterministic, no needless repeats, rebuilt by replaying their log."""

import math
from typing import Any

import pytest

from tuning.core.errors import SearchError
from tuning.core.search import SEARCHES, LoggedSearcher, check_grid, derive_seed, make_searcher
from tuning.core.space import (
    choice,
    declared_space,
    fingerprint,
    loguniform,
    qloguniform,
    quniform,
    randint,
    uniform,
    when,
)

MIXED = declared_space(
    {
        "lr": loguniform(1e-4, 1.0),
        "momentum": quniform(0.5, 0.95, 0.05),
        "step": qloguniform(1, 1000, 3),
        "layers": randint(1, 4),
        "optimizer": choice(["sgd", "adam"]),
        **when("optimizer", "sgd", {"nesterov": choice([True, False])}),
    }
)
FINITE = declared_space({"a": choice(["x", "y", "z"]), "b": choice([1, 2])})


def score(config: dict[str, Any]) -> float:
    return -abs(math.log10(config["lr"]) + 2) - (config["optimizer"] == "adam")


def play(searcher: Any, rounds: int, batch: int) -> list[dict[str, Any]]:
    configs: list[dict[str, Any]] = []
    for _ in range(rounds):
        asked = searcher.ask(batch)
        first = len(configs)
        configs += asked
        for index in reversed(range(len(asked))):
            failed = (first + index) % 7 == 3
            searcher.tell(first + index, None if failed else score(asked[index]))
    return configs


SAMPLERS = [name for name in SEARCHES if name != "grid"]


@pytest.mark.parametrize("name", SAMPLERS)
def test_configurations_are_legal_and_the_same_for_the_same_seed(name: str) -> None:
    # a Gaussian process starts after ten random trials, and every later one takes a second
    rounds = 3 if name == "gp" else 4
    runs = [play(make_searcher(name, MIXED, seed, "max"), rounds, 4) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert all(MIXED.contains(config) for config in runs[0])


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_searcher_rebuilt_from_its_log_goes_on_in_the_same_way(name: str) -> None:
    searcher = LoggedSearcher(make_searcher(name, MIXED, 3, "max"))
    play(searcher, 3, 3)
    again = LoggedSearcher(make_searcher(name, MIXED, 3, "max"), searcher.log)
    assert again.log == searcher.log
    assert again.ask(2) == searcher.ask(2)


def test_tpe_finds_better_values_than_it_starts_with() -> None:
    configs = play(make_searcher("tpe", MIXED, 0, "max"), 12, 4)
    assert sum(map(score, configs[-12:])) > sum(map(score, configs[:12]))


def test_random_search_repeats_nothing_until_a_finite_space_is_exhausted() -> None:
    configs = make_searcher("random", FINITE, 0, "max").ask(12)
    assert len({fingerprint(config) for config in configs[:6]}) == 6
    assert len({fingerprint(config) for config in configs[6:]}) == 6


def test_random_search_may_be_allowed_to_repeat() -> None:
    configs = make_searcher("random", FINITE, 0, "max", duplicates="keep").ask(6)
    assert len({fingerprint(config) for config in configs}) < 6


def test_random_search_reaches_even_the_rarest_points() -> None:
    space = declared_space({"x": qloguniform(1e-9, 1.0, 0.1)})
    configs = make_searcher("random", space, 0, "max").ask(10)
    assert len({fingerprint(config) for config in configs}) == 10


def test_random_configurations_depend_on_their_number_not_on_how_they_were_asked() -> None:
    at_once = make_searcher("random", MIXED, 5, "max").ask(10)
    searcher = make_searcher("random", MIXED, 5, "max")
    assert [searcher.ask(1)[0] for _ in range(10)] == at_once


def test_a_grid_ends_with_its_points() -> None:
    searcher = make_searcher("grid", FINITE, 0, "max")
    assert searcher.ask(4) == [{"a": a, "b": b} for a in "xy" for b in (1, 2)]
    assert searcher.ask(4) == [{"a": "z", "b": 1}, {"a": "z", "b": 2}]
    assert searcher.ask(1) == []


def test_a_grid_of_a_continuous_range_is_refused_by_name() -> None:
    with pytest.raises(SearchError, match="lr is a continuous range"):
        check_grid(declared_space({"lr": uniform(0, 1), "b": choice([1])}))


def test_seeds_differ_by_purpose_and_fit_into_json_numbers() -> None:
    seeds = {derive_seed(0, "trial", n) for n in range(1000)} | {
        derive_seed(1, "trial", n) for n in range(1000)
    }
    assert len(seeds) == 2000
    assert max(seeds) < 2**53
