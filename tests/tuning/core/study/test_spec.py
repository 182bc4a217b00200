"""Specifications: every field, wrong in every way, is named by a JSON Pointer and a sentence."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuning.core.errors import SpecError
from tuning.core.space import choice, declared_space, loguniform, uniform, when
from tuning.core.study import Scheduler, StudySpec, spec_schema

CONTRACT = {
    "workload": "digits-mlp",
    "trials": 100,
    "epochs": 20,
    "search": "random",
    "scheduler": {"name": "asha", "grace": 3, "reduction": 3},
    "scaling": 8,
    "fusion": "auto",
    "eager": 0.5,
    "top_k": 3,
    "seed": 0,
    "devices": 2,
    "bubbles": "allowed",
    "deadline_s": None,
    "space": {"lr": {"type": "loguniform", "low": 0.001, "high": 1.0}},
}


def test_the_documented_specification_is_read_and_written() -> None:
    spec = StudySpec.from_dict(CONTRACT)
    assert spec.scheduler == Scheduler("asha", 3, 3)
    assert StudySpec.from_dict(spec.to_dict()) == spec
    assert StudySpec.from_dict({"workload": "w"}).trials == 20


WRONG: dict[str, list[Any]] = {
    "workload": ["", "  ", None, 3, [], "x" * 256],
    "trials": [0, -1, 1.5, True, "3", None, [], 10**9, math.nan, math.inf],
    "epochs": [0, -1, 1.5, True, "3", {}, 10**9],
    "target_epochs": [0, False, "x"],
    "search": ["bayes", "", None, 3, []],
    "duplicates": ["drop", True],
    "scaling": [0, -8, 2.5, True, "8", None, 10**6],
    "parametrization": ["ntk", 1],
    "fusion": ["on", 0, -1, 1.5, True, None, [], 10**9],
    "eager": [0, -0.5, 1.5, True, "0.5", None, math.nan],
    "top_k": [0, True, "3", None],
    "seed": [-1, 0.5, True, 2**60, None],
    "devices": [0, True, "all"],
    "bubbles": ["yes", True, None],
    "deadline_s": [0, -1, True, "60", math.inf],
    "checkpoint_every": [0, None],
    "scheduler": ["hyperband", 3, [], None, {}],
    "space": [3, [], {"lr": 3}],
    "parameters": [3, [1], "x"],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, values in WRONG.items() for v in values])
def test_a_wrong_field_is_refused_at_its_pointer(field: str, value: Any) -> None:
    with pytest.raises(SpecError) as caught:
        StudySpec.from_dict({**CONTRACT, field: value})
    assert all(p.pointer.startswith(f"/spec/{field}") for p in caught.value.problems)
    assert all(len(p.detail) > 8 for p in caught.value.problems)


def test_unknown_and_missing_fields_are_named_together() -> None:
    with pytest.raises(SpecError) as caught:
        StudySpec.from_dict({"tirals": 3, "scheduler": {"name": "asha", "brackets": 2}})
    pointers = [problem.pointer for problem in caught.value.problems]
    assert pointers == ["/spec/tirals", "/spec/workload", "/spec/scheduler/brackets"]


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_whatever_comes_in_is_read_or_refused_with_a_sentence(data: Any) -> None:
    with pytest.raises(SpecError):
        StudySpec.from_dict(data)


def test_a_study_may_replace_parameters_of_the_workload_but_not_invent_any() -> None:
    own = declared_space(
        {"lr": uniform(0, 1), "o": choice(["sgd", "adam"]), **when("o", "sgd", {"momentum": uniform(0, 1)})}
    )
    replaced = StudySpec.from_dict(
        {"workload": "w", "space": {"momentum": {"type": "choice", "values": [0.9]}}}
    )
    space = replaced.checked_space(own)
    assert space.names == ("lr", "o", "momentum")
    assert space["momentum"].conditions == own["momentum"].conditions
    invented = StudySpec.from_dict({"workload": "w", "space": {"depth": {"type": "choice", "values": [1]}}})
    with pytest.raises(SpecError, match="/spec/space/depth: is no parameter of w; it has lr, o, momentum"):
        invented.checked_space(own)


def test_a_grid_needs_finite_ranges() -> None:
    spec = StudySpec.from_dict({"workload": "w", "search": "grid"})
    with pytest.raises(SpecError, match="/spec/search: grid is not possible: lr is a continuous range"):
        spec.checked_space(declared_space({"lr": loguniform(1e-3, 1)}))
    assert spec.checked_space(declared_space({"lr": choice([1, 2])})).names == ("lr",)


def test_the_schema_knows_every_field() -> None:
    schema = spec_schema()
    assert set(schema["properties"]) == set(StudySpec.from_dict(CONTRACT).to_dict())
    assert schema["required"] == ["workload"]
