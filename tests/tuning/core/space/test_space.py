"""Spaces: what can be declared, what is refused and where, what sampling gives."""

import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuning.core.errors import SpecError
from tuning.core.space import (
    choice,
    declared_space,
    form_fields,
    grid,
    loguniform,
    parse_distribution,
    parse_space,
    qloguniform,
    qrandint,
    quniform,
    randint,
    uniform,
    when,
)

EVERY_KIND = {
    "a": uniform(-1, 1),
    "b": loguniform(1e-4, 1.0),
    "c": quniform(0.1, 1.0, 0.25),
    "d": qloguniform(1e-4, 1.0, 1e-4),
    "e": randint(1, 6),
    "f": qrandint(16, 100, 16),
    "g": choice(["relu", 3, None, True, [0.9, 0.99]]),
    "h": grid([1, 2]),
}


@pytest.mark.parametrize(
    ("entry", "pointer", "rule"),
    [
        (
            {"type": "loguniform", "low": 0, "high": 1},
            "/low",
            "must be above 0, because the range is logarithmic",
        ),
        ({"type": "qloguniform", "low": -1, "high": 1, "q": 1}, "/low", "must be above 0"),
        ({"type": "uniform", "low": 2, "high": 1}, "/low", "must not be above `high`, which is 1"),
        ({"type": "uniform", "low": 0}, "/high", "is required"),
        ({"type": "uniform", "low": True, "high": 2}, "/low", "must be a number"),
        ({"type": "uniform", "low": "0", "high": 2}, "/low", "must be a number"),
        ({"type": "uniform", "low": math.nan, "high": 2}, "/low", "must be finite"),
        ({"type": "uniform", "low": 0, "high": math.inf}, "/high", "must be finite"),
        ({"type": "uniform", "low": 0, "high": 1, "step": 2}, "/step", "is not a field of uniform"),
        ({"type": "quniform", "low": 0, "high": 1, "q": 0}, "/q", "must be above 0"),
        ({"type": "quniform", "low": 0, "high": 1e300, "q": 1e-9}, "/q", "must leave at most 2**53 points"),
        ({"type": "randint", "low": 0.5, "high": 2}, "/low", "must be a whole number"),
        ({"type": "randint", "low": 0, "high": 10**30}, "/high", "must be between -2**53 and 2**53"),
        ({"type": "choice", "values": []}, "/values", "must have at least one value"),
        ({"type": "choice", "values": "abc"}, "/values", "must be a list"),
        ({"type": "choice", "values": [1, 1]}, "/values/1", "repeats an earlier value"),
        ({"type": "choice", "values": [{}]}, "/values/0", "must be a finite number"),
        ({"type": "choice", "values": [math.nan]}, "/values/0", "must be a finite number"),
        ({"type": "choice"}, "/values", "must be a list"),
        ({"type": "normal"}, "/type", "must be one of uniform, loguniform"),
        ({"low": 0}, "/type", "must be one of uniform, loguniform"),
        (3, "", "must be an object with a `type`"),
        (None, "", "must be an object with a `type`"),
    ],
)
def test_a_wrong_entry_is_refused_at_the_field_that_is_wrong(entry: Any, pointer: str, rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_space({"x/y": entry}, "/spec/space")
    problem = caught.value.problems[0]
    assert problem.pointer == f"/spec/space/x~1y{pointer}"
    assert problem.detail.startswith(rule)


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        parse_space({"a": {"type": "uniform", "low": "x"}, "b": {"type": "choice", "values": []}, "": 1})
    assert [p.pointer for p in caught.value.problems] == ["/a/low", "/a/high", "/b/values", "/"]


def test_a_space_survives_json() -> None:
    space = declared_space({**EVERY_KIND, "only relu": when("g", "relu", {"slope": uniform(0, 1)})})
    assert parse_space(json.loads(json.dumps(space.to_json()))) == space
    assert [field["name"] for field in form_fields(space)] == [*EVERY_KIND, "slope"]


@given(seed=st.integers(0, 2**32))
def test_samples_stay_in_their_ranges_and_encode_into_the_unit_cube(seed: int) -> None:
    space = declared_space(EVERY_KIND)
    config = space.sample(random.Random(seed))
    assert space.contains(config)
    assert json.loads(json.dumps(config)) == config
    assert all(0 <= u <= 1 for u in space.encode(config))


@given(
    low=st.floats(-1e6, 1e6),
    span=st.floats(0, 1e6),
    q=st.floats(1e-3, 1e6),
    u=st.floats(0, 1, exclude_max=True),
)
def test_quantised_values_are_anchored_at_low_and_never_leave_the_range(
    low: float, span: float, q: float, u: float
) -> None:
    distribution = quniform(low, low + span, q)
    value = distribution.from_unit(u)
    assert low <= value <= low + span
    steps = (value - low) / q
    assert abs(steps - round(steps)) < 1e-6 * max(1.0, abs(low) / q)


def test_quantised_points_are_decimal_numbers() -> None:
    points = quniform(0.1, 0.7, 0.1).points()
    assert points is not None
    assert list(points) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert list(qrandint(3, 10, 4).points() or ()) == [3, 7]
    assert quniform(0.5, 0.999, 1e-3).contains(0.999)


@pytest.mark.parametrize(
    ("distribution", "share_below", "middle"),
    [(uniform(0, 10), 0.5, 5), (loguniform(1e-4, 1), 0.5, 1e-2), (randint(1, 4), 0.5, 2.5)],
)
def test_the_mass_lies_where_the_distribution_says(
    distribution: Any, share_below: float, middle: float
) -> None:
    rng = random.Random(0)
    values = [distribution.from_unit(rng.random()) for _ in range(4000)]
    assert abs(sum(value < middle for value in values) / 4000 - share_below) < 0.03


def test_conditional_parameters_exist_only_where_their_condition_holds() -> None:
    space = declared_space(
        {
            **when("optimizer", ("sgd", "rmsprop"), {"momentum": uniform(0, 1)}),
            "optimizer": choice(["sgd", "adam", "rmsprop"]),
            "adam": when(
                "optimizer",
                "adam",
                {"beta": choice([0.9, 0.99]), "x": when("beta", 0.99, {"eps": randint(1, 2)})},
            ),
        }
    )
    rng = random.Random(1)
    seen = {tuple(sorted(space.sample(rng))) for _ in range(200)}
    assert seen == {
        ("momentum", "optimizer"),
        ("beta", "optimizer"),
        ("beta", "eps", "optimizer"),
    }
    assert not space.contains({"optimizer": "adam", "beta": 0.9, "momentum": 0.5})
    assert math.isnan(space.encode({"optimizer": "adam", "beta": 0.9})[space.names.index("momentum")])


def test_the_grid_of_a_conditional_space_has_exactly_its_configurations() -> None:
    space = declared_space({"o": choice(["a", "b"]), **when("o", "b", {"k": grid([1, 2, 3])})})
    configs = list(space.grid())
    assert configs == [{"o": "a"}, {"o": "b", "k": 1}, {"o": "b", "k": 2}, {"o": "b", "k": 3}]
    assert space.size() == 4


@pytest.mark.parametrize(
    ("declaration", "rule"),
    [
        (lambda: {"a": when("b", 1, {"c": uniform(0, 1)})}, "names `b`, which is no parameter"),
        (
            lambda: {"b": uniform(0, 1), **when("b", 1, {"c": uniform(0, 1)})},
            "needs a parameter with listed values",
        ),
        (
            lambda: {"b": choice([1]), **when("b", 2, {"c": uniform(0, 1)})},
            "names a value that `b` cannot have",
        ),
        (lambda: {"c": uniform(0, 1), "x": when("c", 1, {"c": uniform(0, 1)})}, "is declared twice"),
        (lambda: {"": uniform(0, 1)}, "must have a name"),
        (lambda: {"a": uniform("x", 1)}, "must be a number"),  # type: ignore[arg-type]
        (lambda: [1], "a space must be a dictionary"),
    ],
)
def test_a_wrong_declaration_is_refused(declaration: Any, rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        declared_space(declaration())


def test_conditions_that_go_round_in_circles_are_refused() -> None:
    entry = {"type": "choice", "values": [1]}
    with pytest.raises(SpecError, match="depends on itself"):
        parse_space(
            {
                "a": {**entry, "when": {"name": "b", "values": [1]}},
                "b": {**entry, "when": {"name": "a", "values": [1]}},
            }
        )


def test_constants_are_parameters_with_one_value() -> None:
    space = declared_space({"lr": uniform(0, 1), "depth": 3, "betas": [0.9, 0.99]})
    config = space.sample(random.Random(0))
    assert config["depth"] == 3
    assert config["betas"] == [0.9, 0.99]
    assert parse_distribution({"type": "choice", "values": [3]}) == space["depth"].distribution
