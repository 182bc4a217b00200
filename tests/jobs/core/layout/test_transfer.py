"""State transfer: every needed box exactly once, from living holders only."""

from collections import defaultdict
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from jobs.core.layout import Box, Layout, Move, Replica, Stage, transfer_plan
from jobs.core.layout.transfer import holdings

NAMES = [f"g{i}" for i in range(12)]
LAYERS = 4


@st.composite
def layouts(draw):
    names = list(draw(st.permutations(NAMES)))
    replicas = []
    for _ in range(draw(st.integers(1, 3))):
        stages, left = [], LAYERS
        while left and names:
            size = min(draw(st.sampled_from([1, 2, 3, 4])), len(names))
            members, names = tuple(names[:size]), names[size:]
            count = draw(st.integers(1, left)) if names else left
            stages.append(Stage(members, count))
            left -= count
        if left and stages:
            stages[-1] = Stage(stages[-1].devices, stages[-1].layers + left)
        if stages:
            replicas.append(Replica(1, tuple(stages)))
    return Layout(tuple(replicas))


living = st.sets(st.sampled_from(NAMES))


def contains(outer, inner):
    return outer.layer == inner.layer and outer.start <= inner.start and inner.end <= outer.end


@given(layouts(), layouts(), living)
def test_every_needed_box_is_covered_exactly_once(old, new, alive):
    plan = transfer_plan(old, new, alive)
    pieces = defaultdict(list)
    for target, box in [*plan.kept, *((move.target, move.box) for move in plan.moves), *plan.missing]:
        pieces[target, box.layer].append((box.start, box.end))
    needs = {(name, box.layer): box for name, boxes in holdings(new).items() for box in boxes}
    assert pieces.keys() == needs.keys()
    for key, need in needs.items():
        parts = sorted(pieces[key])
        assert parts[0][0] == need.start
        assert parts[-1][1] == need.end
        assert all(before[1] == after[0] for before, after in zip(parts, parts[1:], strict=False))


@given(layouts(), layouts(), living)
def test_only_living_holders_send_and_only_what_the_target_lacks(old, new, alive):
    plan = transfer_plan(old, new, alive)
    before = holdings(old)
    for move in plan.moves:
        assert move.source in alive
        assert move.source != move.target
        assert any(contains(box, move.box) for box in before[move.source])
        own = [
            box for box in before.get(move.target, []) if move.target in alive and box.layer == move.box.layer
        ]
        assert all(box.end <= move.box.start or box.start >= move.box.end for box in own)
    for name, box in plan.kept:
        assert name in alive
        assert any(contains(held, box) for held in before[name])


@given(layouts(), layouts(), living)
def test_a_checkpoint_is_needed_exactly_when_a_needed_part_has_no_living_holder(old, new, alive):
    plan = transfer_plan(old, new, alive)
    survivors = [box for name, boxes in holdings(old).items() if name in alive for box in boxes]
    for _, lost in plan.missing:
        assert not any(
            box.layer == lost.layer and box.start < lost.end and lost.start < box.end for box in survivors
        )
    whole = {
        layer: sum(
            (
                Fraction(1, 12)
                for i in range(12)
                if any(contains(b, Box(layer, Fraction(i, 12), Fraction(i + 1, 12))) for b in survivors)
            ),
            Fraction(0),
        )
        for layer in range(LAYERS)
    }
    assert plan.needs_checkpoint == any(share < 1 for share in whole.values())


@given(layouts())
def test_staying_moves_nothing(layout):
    plan = transfer_plan(layout, layout, NAMES)
    assert plan.moves == ()
    assert plan.moved([1.0] * LAYERS) == 0.0
    assert not plan.needs_checkpoint


def test_splitting_a_pair_sends_each_half_to_the_other():
    half = Fraction(1, 2)
    old = Layout((Replica(8, (Stage(("a", "b"), 2),)),))
    new = Layout((Replica(8, (Stage(("a",), 1), Stage(("b",), 1))),))
    plan = transfer_plan(old, new, {"a", "b"})
    assert plan.moves == (
        Move(Box(0, half, Fraction(1)), "b", "a"),
        Move(Box(1, Fraction(0), half), "a", "b"),
    )
    assert plan.moved([10.0, 20.0]) == 15.0
    assert plan.moved_layers() == (0, 1)


def test_donors_of_the_same_node_come_first_then_those_that_sent_least():
    old = Layout(
        (Replica(1, (Stage(("a",), 2),)), Replica(1, (Stage(("b",), 2),)), Replica(1, (Stage(("c",), 2),)))
    )
    new = Layout((Replica(1, (Stage(("x",), 2),)), Replica(1, (Stage(("y",), 2),))))
    nodes = {"a": "n0", "b": "n1", "c": "n2", "x": "n1", "y": "n9"}
    plan = transfer_plan(old, new, {"a", "b", "c", "x", "y"}, nodes)
    assert [(move.source, move.target) for move in plan.moves] == [
        ("a", "y"),
        ("b", "x"),
        ("b", "x"),
        ("c", "y"),
    ]


def test_a_layer_that_died_with_its_only_holder_needs_the_checkpoint():
    old = Layout((Replica(1, (Stage(("a",), 1), Stage(("b",), 1))),))
    new = Layout((Replica(1, (Stage(("a",), 2),)),))
    plan = transfer_plan(old, new, {"a"})
    assert plan.missing == (("a", Box(1, Fraction(0), Fraction(1))),)
    assert plan.needs_checkpoint
