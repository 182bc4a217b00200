"""Every device in whole thousandths: shares, gangs over tasks, unusable devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.core.errors import CapacityError
from cluster.core.placement.devices import DevicePool, NodeView, Slice
from cluster.core.requests import TaskShape, gang


def test_three_bundles_of_shares_on_two_nodes_add_up_exactly():
    pool = DevicePool([NodeView("a", 1), NodeView("b", 4)])
    slices = pool.place((TaskShape(1, 1, 100), TaskShape(2, 1, 900)))
    assert slices is not None
    assert sum(piece.milli for piece in slices) == 1900
    assert pool.totals()[""]["used"] == 1900
    # the tenth and one nine-tenths share a device
    assert sorted(pool.free)[:2] == [0, 100]


def test_a_share_goes_to_the_fullest_device_that_still_has_room():
    pool = DevicePool([NodeView("a", 3)])
    pool.occupy([Slice("a", 0, 300), Slice("a", 1, 600)])
    assert pool.place((TaskShape(1, 1, 400),)) == [Slice("a", 1, 400)]
    assert pool.place((TaskShape(1, 1, 400),)) == [Slice("a", 0, 400)]
    assert pool.place((TaskShape(1, 1, 400),)) == [Slice("a", 2, 400)]


def test_several_shares_of_one_task_are_on_devices_of_one_node():
    pool = DevicePool([NodeView("a", 1), NodeView("b", 2)])
    slices = pool.place((TaskShape(1, 2, 500),))
    assert slices is not None
    assert {piece.node for piece in slices} == {"b"}
    assert len({piece.device for piece in slices}) == 2


def test_a_gang_split_over_master_and_workers_starts_whole_or_not_at_all():
    pool = DevicePool([NodeView("a", 8)])
    assert pool.place((TaskShape(1, 8), TaskShape(1, 8))) is None
    assert pool.whole.total_free == 8


@pytest.mark.parametrize(
    ("task", "nodes", "fits"),
    [
        (TaskShape(2, 4), [4, 4], True),
        (TaskShape(1, 8), [4, 4], False),  # one task needs one node
        (TaskShape(1, 8, may_split=True), [4, 4], True),
        (TaskShape(3, 4), [8, 4], True),
        (TaskShape(3, 4), [8, 3], False),
    ],
)
def test_each_task_is_on_one_node(task, nodes, fits):
    pool = DevicePool([NodeView(str(number), size) for number, size in enumerate(nodes)])
    slices = pool.place((task,))
    assert (slices is not None) == fits
    if slices and not task.may_split:
        for number in range(task.count):
            assert len({piece.node for piece in slices if piece.task == number}) == 1


def test_an_elastic_gang_starts_with_what_fits_but_not_with_less_than_its_minimum():
    task = TaskShape(8, 1, min_count=2)
    assert len(DevicePool([NodeView("a", 4)]).place((task,)) or []) == 4
    assert len(DevicePool([NodeView("a", 3)]).place((task,)) or []) == 2
    assert DevicePool([NodeView("a", 1)]).place((task,)) is None


def test_memory_asked_for_is_a_share_of_the_smallest_device_allowed():
    pool = DevicePool([NodeView("a", 1, memory_bytes=80)])
    slices = pool.place((TaskShape(1, 1, memory_bytes=40),))
    assert slices == [Slice("a", 0, 500)]
    assert pool.place((TaskShape(1, 1, memory_bytes=81),)) is None


def test_unusable_and_drained_devices_are_counted_apart():
    pool = DevicePool(
        [NodeView("a", 4, unusable=(3,)), NodeView("b", 2, state="draining")],
        held=[Slice("b", 0), Slice("a", 0)],
    )
    assert pool.totals()[""] == {"total": 6000, "used": 2000, "free": 2000, "drained": 2000}
    pool.release([Slice("b", 0)])
    assert pool.whole.total_free == 2
    assert pool.place(gang(3)) is None


def test_a_device_is_never_held_twice():
    with pytest.raises(CapacityError):
        DevicePool([NodeView("a", 1)], held=[Slice("a", 0, 600), Slice("a", 0, 600)])
    pool = DevicePool([NodeView("a", 1)])
    with pytest.raises(CapacityError):
        pool.release([Slice("a", 0)])
    with pytest.raises(CapacityError):
        pool.occupy([Slice("a", 7)])


SHAPES = st.builds(
    TaskShape,
    count=st.integers(1, 3),
    devices=st.integers(1, 3),
    milli=st.sampled_from([100, 333, 500, 1000]),
    may_split=st.booleans(),
)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.lists(SHAPES, max_size=8), st.randoms())
def test_free_used_and_drained_make_the_total_and_everything_comes_back(sizes, shapes, random):
    nodes = [
        NodeView(str(n), size, unusable=(0,) if random.random() < 0.3 else ()) for n, size in enumerate(sizes)
    ]
    pool = DevicePool(nodes)
    idle = pool.totals()
    placed = []
    for shape in shapes:
        slices = pool.place((shape,))
        if slices is not None:
            assert sum(piece.milli for piece in slices) == shape.total_milli()
            placed.append(slices)
        totals = pool.totals()[""]
        assert totals["used"] + totals["free"] + totals["drained"] == totals["total"]
        assert totals["free"] == pool.free_milli()
    for slices in placed:
        pool.release(slices)
    assert pool.totals() == idle
    assert pool.free_milli() == DevicePool(nodes).free_milli()
