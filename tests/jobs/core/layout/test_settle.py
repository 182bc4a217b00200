"""A plan keeps devices near the layers they hold, and stays as fast."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.layout import (
    Action,
    Device,
    Instance,
    Layer,
    Layout,
    Replica,
    Stage,
    action_of,
    iteration_time,
    transfer_plan,
)
from jobs.core.layout import settle as module
from jobs.core.layout.settle import settle

DEVICES = tuple(Device(f"g{i}", f"n{i // 4}", 0.5 if i == 7 else 1.0, 9.0) for i in range(8))


def layout(*replicas):
    return Layout(
        tuple(Replica(4, tuple(Stage(tuple(names), count) for names, count in row)) for row in replicas)
    )


CURRENT = layout([(["g0", "g1"], 2), (["g2", "g3"], 2)], [(["g4", "g5"], 2), (["g6", "g7"], 2)])
INSTANCE = Instance(DEVICES, (Layer(1.0, 2.0, 1.0),) * 4, None, (1, 2), {1: 1.0, 2: 0.9}, 2, 8, 0.0, CURRENT)


def test_groups_go_back_to_their_stages_and_replicas_to_their_places():
    shuffled = layout([(["g5", "g4"], 2), (["g6", "g7"], 2)], [(["g2", "g3"], 2), (["g1", "g0"], 2)])
    assert settle(INSTANCE, shuffled) == CURRENT


@pytest.mark.parametrize("most_compared", [0, 400])
@given(order=st.permutations(range(4)), cuts=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_settling_changes_no_time_and_moves_no_more(most_compared, order, cuts):
    groups = [("g0", "g1"), ("g2", "g3"), ("g4", "g5"), ("g6", "g7")]
    rows = [groups[i] for i in order]
    plan = layout([(rows[0], cuts[0]), (rows[1], 4 - cuts[0])], [(rows[2], cuts[1]), (rows[3], 4 - cuts[1])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_COMPARED", most_compared)
        settled = settle(INSTANCE, plan)
    assert iteration_time(INSTANCE, settled) == pytest.approx(iteration_time(INSTANCE, plan))
    assert settled.devices() == plan.devices()
    if most_compared:
        names = [device.id for device in DEVICES]
        before, after = (transfer_plan(CURRENT, target, names).moved([1.0] * 4) for target in (plan, settled))
        assert after <= before + 1e-9


@pytest.mark.parametrize(
    ("plan", "action"),
    [
        (CURRENT, Action.KEEP),
        (Layout((CURRENT.replicas[0], Replica(5, CURRENT.replicas[1].stages))), Action.REBALANCE),
        (
            layout([(("g0", "g1"), 3), (("g2", "g3"), 1)], [(("g4", "g5"), 2), (("g6", "g7"), 2)]),
            Action.REPARTITION,
        ),
        (layout([(("g1", "g0"), 2), (("g2", "g3"), 2)], [(("g4", "g5"), 2), (("g6", "g7"), 2)]), Action.KEEP),
        (
            layout([(("g2", "g3"), 2), (("g0", "g1"), 2)], [(("g4", "g5"), 2), (("g6", "g7"), 2)]),
            Action.REGROUP,
        ),
        (
            layout([(("g0", "g1"), 2), (("g2", "g3"), 2)], [(("g4", "g5"), 2), (("g6",), 1), (("g7",), 1)]),
            Action.REGROUP,
        ),
        (layout([(("g0", "g1"), 2), (("g2", "g3"), 2)], [(("g4", "g5"), 3), (("g6",), 1)]), Action.EXCLUDE),
    ],
)
def test_action_is_the_largest_change(plan, action):
    assert action_of(INSTANCE, plan) is action
