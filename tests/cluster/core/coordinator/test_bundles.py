"""What a study asks for, gives back and does with more devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.core.coordinator import StudyState, decide_bundles
from cluster.core.coordinator.bundles import performance_first, spread


def kinds(state: StudyState, now_s: float = 0.0) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(d.kind, d.subject, d.sizes) for d in decide_bundles(state, now_s)]


@pytest.mark.parametrize(
    ("alive", "fusion", "cap", "target", "asked"),
    [
        (100, 16, 8, False, 7),
        (100, 16, 4, False, 4),
        (3, 16, 8, False, 1),
        (0, 16, 8, False, 0),
        (0, 16, 8, True, 1),
    ],
)
def test_a_rung_asks_for_as_many_devices_as_it_has_containers(alive, fusion, cap, target, asked) -> None:
    decision = decide_bundles(StudyState(alive, fusion, cap, target=target, rung=2), 0.0)[0]
    assert (decision.kind, decision.subject) == ("ask", str(asked))
    assert "rung 2" in decision.reason


def test_sixteen_fused_trials_and_three_more_devices_become_four_times_four() -> None:
    state = StudyState(16, 16, 4, containers={"c0": 16}, new_bundles=3)
    assert kinds(state)[1:] == [("split", "c0", (4, 4, 4, 4))]


@pytest.mark.parametrize(
    ("containers", "bundles", "parts"),
    [
        ({"a": 16}, 2, {"a": [6, 5, 5]}),
        ({"a": 8, "b": 8}, 2, {"a": [4, 4], "b": [4, 4]}),
        ({"a": 12, "b": 4}, 2, {"a": [4, 4, 4], "b": [4]}),
        ({"a": 1, "b": 2}, 5, {"a": [1], "b": [1, 1]}),
        ({}, 3, {}),
    ],
)
def test_devices_go_where_the_largest_part_is(containers, bundles, parts) -> None:
    assert spread(containers, bundles) == parts


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 40)), st.integers(0, 12))
def test_splitting_loses_no_trial_and_uses_no_more_devices_than_there_are(containers, bundles) -> None:
    parts = spread(containers, bundles)
    assert {name: sum(sizes) for name, sizes in parts.items()} == containers
    assert all(size >= 1 for sizes in parts.values() for size in sizes)
    assert sum(len(sizes) - 1 for sizes in parts.values()) <= bundles


def test_only_what_cannot_be_split_trains_data_parallel() -> None:
    state = StudyState(2, 16, 8, containers={"c": 2}, new_bundles=3, target=True)
    assert kinds(state)[1:] == [("split", "c", (1, 1)), ("widen", "3", ())]


def released(state: StudyState, now_s: float) -> list[str]:
    return [d.subject for d in decide_bundles(state, now_s) if d.kind == "release"]


def test_a_bundle_goes_back_after_more_than_sixty_idle_seconds() -> None:
    state = StudyState(0, 16, 8, nodes={"a": "n0", "b": "n0"}, idle_since_s={"a": 10.0, "b": 40.0})
    assert released(state, 70.0) == []
    assert released(state, 70.1) == ["a"]
    assert released(state, 101.0) == ["a", "b"]


def test_whole_nodes_are_given_back_first() -> None:
    nodes = {"a": "n0", "b": "n0", "c": "n0", "d": "n1"}
    idle = {"a": 0.0, "b": 5.0, "d": 9.0}
    assert released(StudyState(48, 16, 8, nodes=nodes, idle_since_s=idle), 100.0) == ["d"]


def test_a_bundle_stays_while_a_gang_waits_for_it_or_the_study_wants_it() -> None:
    nodes, idle = {"a": "n0", "b": "n0"}, {"a": 0.0, "b": 0.0}
    assert released(StudyState(0, 16, 8, nodes=nodes, idle_since_s=idle, pending_on=("a",)), 100.0) == ["b"]
    assert released(StudyState(20, 16, 8, nodes=nodes, idle_since_s=idle), 100.0) == []


@pytest.mark.parametrize(("evenly", "shares"), [(False, {"b": 5}), (True, {"b": 2, "a": 2, "c": 1})])
def test_devices_for_trials_that_cannot_be_fused_go_to_the_best_or_evenly(evenly, shares) -> None:
    assert performance_first({"a": 0.8, "b": 0.9, "c": 0.7}, 5, evenly=evenly) == shares
