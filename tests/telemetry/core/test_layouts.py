"""Layouts and plans as people see them."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.core.layouts import changes, layout_view
from telemetry.core.plans import candidates


def layout(*replicas, idle=(), dead=()):
    """Replicas as (micro-batches, [(ranks, layers), ...])."""
    rows = [
        {
            "microbatches": count,
            "stages": [{"devices": [f"r{r}" for r in ranks], "layers": n} for ranks, n in stages],
        }
        for count, stages in replicas
    ]
    return {"replicas": rows, "idle": [f"r{r}" for r in idle], "dead": [f"r{r}" for r in dead]}


TWO = layout((4, [([0], 2), ([1], 2)]), (4, [([2], 2), ([3], 2)]))


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (TWO, []),
        (
            layout((3, [([0], 2), ([1], 2)]), (5, [([2], 2), ([3], 2)])),
            ["replica 0 runs 3 micro-batches instead of 4", "replica 1 runs 5 micro-batches instead of 4"],
        ),
        (
            layout((4, [([0], 3), ([1], 1)]), (4, [([2], 2), ([3], 2)])),
            ["r0 has layers 1–3 instead of layers 1–2", "r1 has layer 4 instead of layers 3–4"],
        ),
        (
            layout((4, [([0], 4)]), (4, [([2], 2), ([3], 2)]), idle=[1]),
            ["r1 becomes idle", "r0 has layers 1–4 instead of layers 1–2"],
        ),
        (
            layout((8, [([0], 1), ([2, 3], 3)]), dead=[1]),
            ["r1 is taken out as dead", "r0 has layer 1 instead of layers 1–2",
             "r2 has layers 2–4 instead of layers 1–2", "r3 has layers 2–4 instead of layers 3–4",
             "r2, r3 form one tensor-parallel group", "1 replica instead of 2, with 8 micro-batches"],
        ),
    ],
)  # fmt: skip
def test_a_change_is_told_in_words(after, words):
    assert changes(TWO, after) == words


def test_a_view_marks_what_is_slow_and_what_changed():
    after = layout((3, [([0], 3), ([1], 1)]), (5, [([2], 2), ([3], 2)]))
    view = layout_view(after, [{"label": f"n/{i}"} for i in range(4)], {1: 2.5, 0: 1.1}, TWO)
    marks = [[(s.span, s.changed, s.is_slow) for s in replica.stages] for replica in view.replicas]
    assert marks == [
        [("layers 1–3", True, False), ("layer 4", True, True)],
        [("layers 1–2", False, False), ("layers 3–4", False, False)],
    ]
    assert [replica.changed for replica in view.replicas] == [True, True]
    assert view.replicas[0].stages[1].ranks[0].device == "n/1"
    assert view.in_words == "2 replicas of 2 stages, 4 ranks"
    assert layout_view({}).in_words == "no layout yet"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 9))
def test_nothing_changes_in_the_same_layout_and_every_layer_is_drawn_once(layers, count):
    one = layout((count, [([i], n) for i, n in enumerate(layers)]))
    assert changes(one, copy.deepcopy(one)) == []
    stages = layout_view(one, before=one).replicas[0].stages
    drawn = [layer for s in stages for layer in range(s.first, s.last + 1)]
    assert drawn == list(range(1, sum(layers) + 1))
    assert not any(stage.changed for stage in stages)


def test_candidates_stand_in_order_and_each_once():
    plan = layout((4, [([0], 3), ([1], 1)]), (4, [([2], 2), ([3], 2)]))
    slower = layout((2, [([0], 2), ([1], 2)]), (6, [([2], 2), ([3], 2)]))
    other = {"title": "t", "predicted_pause_s": 0.5, "moved_bytes": 7, "memory": [], "reason": "why"}
    row = {
        "kind": "repartition", "before": TWO, "plan": plan, "baseline_iteration_s": 2.0,
        "predicted_iteration_s": 1.0, "predicted_pause_s": 0.1, "moved_bytes": 5, "needs_checkpoint": False,
        "memory": [{"rank": r, "before_bytes": 1, "after_bytes": 2 + r, "available_bytes": 10}
                   for r in range(4)],
        "alternatives": [
            {"name": "no_action", "plan": TWO, "predicted_iteration_s": 2.0, **other},
            {"name": "reroute", "plan": None, "predicted_iteration_s": None, **other},
            {"name": "rebalance", "plan": slower, "predicted_iteration_s": 1.5, **other},
            {"name": "same", "plan": copy.deepcopy(plan), "predicted_iteration_s": 1.0, **other},
        ],
    }  # fmt: skip
    found = candidates(row, [], {})
    assert [(c.name, c.iteration_s, c.gain) for c in found] == [
        ("plan", 1.0, 2.0), ("keep", 2.0, 1.0), ("rebalance", 1.5, 2.0 / 1.5), ("reroute", None, None),
    ]  # fmt: skip
    assert found[0].memory == (3, 5, 10)
    assert found[0].memory_share == 0.5
    dead = candidates(row | {"baseline_iteration_s": None}, [], {})
    assert "stands still" in dead[1].reason
