"""The pool of whole devices against a plain list of free counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.core.errors import CapacityError
from cluster.core.placement import NodePool, place_consolidated, place_relaxed

SIZES = st.lists(st.integers(0, 8), min_size=1, max_size=12)


def best_fit_by_hand(free: list[int], devices: int) -> int:
    fitting = [(count, node) for node, count in enumerate(free) if count >= devices]
    return min(fitting)[1] if fitting else -1


@given(SIZES, st.lists(st.tuples(st.integers(0, 11), st.integers(1, 8)), max_size=40))
def test_best_fit_is_the_fullest_node_with_the_lowest_number(sizes, moves):
    pool = NodePool(sizes)
    for node, devices in moves:
        node %= len(sizes)
        if devices <= pool.free[node]:
            pool.take(node, devices)
        elif pool.free[node] + devices <= sizes[node]:
            pool.give(node, devices)
        for asked in range(1, 9):
            assert pool.best_fit(asked) == best_fit_by_hand(pool.free, asked)
            assert pool.at_least(asked) == sum(1 << n for n, free in enumerate(pool.free) if free >= asked)
        empty = sum(1 << n for n, free in enumerate(pool.free) if free == sizes[n] > 0)
        assert (pool.total_free, pool.empty) == (sum(pool.free), empty)
        assert NodePool(sizes, pool.free).best_fit(1) == pool.best_fit(1)


def test_devices_are_never_given_twice_nor_back_twice():
    pool = NodePool([2])
    pool.take(0, 2)
    with pytest.raises(CapacityError):
        pool.take(0, 1)
    pool.give(0, 2)
    with pytest.raises(CapacityError):
        pool.give(0, 1)


@pytest.mark.parametrize(
    ("sizes", "taken", "devices", "slots"),
    [
        ([8, 8], [(0, 5)], 2, [(0, 2)]),  # the fuller node
        ([8, 8], [], 2, [(0, 2)]),  # the lowest number
        ([8, 8], [(0, 5), (1, 5)], 4, None),  # 6 free, but no 4 together
        ([8, 8, 8], [(1, 1)], 16, [(0, 8), (2, 8)]),  # empty nodes
        ([8, 8, 8], [(2, 3)], 12, [(0, 8), (2, 4)]),  # the rest by best fit
        ([8, 8, 4], [], 20, [(0, 8), (1, 8), (2, 4)]),
        ([8, 8], [(0, 1), (1, 1)], 12, None),  # no empty node
        ([8], [], 9, None),
    ],
)
def test_consolidated_placement(sizes, taken, devices, slots):
    pool = NodePool(sizes)
    pool.take_all(taken)
    before = pool.free.copy()
    assert place_consolidated(pool, devices) == slots
    if slots is None:
        assert pool.free == before


def test_relaxed_placement_scatters_only_where_consolidated_fails():
    pool = NodePool([8, 8, 8])
    pool.take_all([(0, 5), (1, 6), (2, 7)])
    assert place_relaxed(pool, 3) == [(0, 3)]
    assert place_relaxed(pool, 3) == [(1, 2), (2, 1)]
    assert place_relaxed(pool, 1) is None


@given(SIZES, st.lists(st.integers(1, 20), max_size=15), st.sampled_from([place_consolidated, place_relaxed]))
def test_a_placement_is_whole_or_nothing(sizes, gangs, place):
    pool = NodePool(sizes)
    for devices in gangs:
        before = pool.total_free
        slots = place(pool, devices)
        given_out = sum(count for _, count in slots) if slots is not None else 0
        assert given_out in (0, devices)
        assert pool.total_free == before - given_out
        assert (slots is not None) == (given_out == devices)


@given(SIZES, st.integers(1, 40))
def test_whatever_the_cluster_has_fits_it_idle(sizes, devices):
    fits = place_consolidated(NodePool(sizes), devices) is not None
    assert fits == (devices <= sum(sizes))
