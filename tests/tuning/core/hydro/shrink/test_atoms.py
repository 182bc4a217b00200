"""Symbolic sizes: cutting, merging and uniting keep the arithmetic right."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuning.core.hydro.widths.atoms import (
    ONE,
    Conflict,
    Dim,
    fix,
    fresh,
    is_fixed,
    leaves,
    mark_count,
    normal,
    size_of,
    split_product,
    split_sum,
    unify,
    widen,
)
from tuning.core.hydro.widths.factories import spread_picks
from tuning.core.hydro.widths.movement import merge, regroup
from tuning.core.hydro.widths.sizes import Sizes

sizes = st.integers(2, 12)
shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def width(size: int) -> Dim:
    return fresh(size, width=True)


@given(factors=st.lists(sizes, min_size=1, max_size=4))
def test_a_product_cut_into_its_factors_keeps_them(factors: list[int]) -> None:
    whole = width(prod(factors))
    parts = split_product(whole, factors)
    assert [size_of(part) for part in parts] == factors
    assert size_of(merge(parts)) == size_of(whole) == prod(factors)
    assert merge(parts) == normal(whole)


@given(pieces=st.lists(sizes, min_size=1, max_size=5))
def test_a_sum_cut_into_its_pieces_keeps_them(pieces: list[int]) -> None:
    whole = width(sum(pieces))
    parts = split_sum(whole, pieces)
    assert [size_of(part) for part in parts] == pieces
    assert tuple(term for part in parts for term in part) == normal(whole)


@given(shape=shapes, order=st.randoms())
def test_a_view_has_the_sizes_that_were_asked_for(shape: list[int], order: object) -> None:
    source = [fresh(size) for size in shape]
    for target in (shape, [prod(shape)], [1, *shape, 1]):
        assert [size_of(dim) for dim in regroup(source, target)] == target


@given(a=st.lists(sizes, min_size=1, max_size=3), b=sizes)
def test_united_dimensions_share_every_later_fact(a: list[int], b: int) -> None:
    product = merge([width(size) for size in a])
    alone = width(prod(a))
    unify(alone, product)
    assert normal(alone) == normal(product)
    fix(alone)
    assert is_fixed(product)
    other, third = fresh(b), fresh(b)
    unify(other, third)
    widen(third)
    assert all(atom.width for atom in leaves(other))


def test_equal_chunks_of_one_width_are_a_number_times_a_part() -> None:
    """Query, key and value packed: cut as a sum in one place, viewed as a product in another."""
    packed = width(96)
    split_sum(packed, [32, 32, 32])
    three, heads, size = split_product(packed, [3, 4, 8])
    assert is_fixed(three)
    mark_count(heads)
    chosen = Sizes([packed], 8)
    assert (chosen.new(heads), chosen.new(size), chosen.new(packed)) == (1, 4, 12)


@pytest.mark.parametrize(
    ("left", "right"),
    [([4, 6], [6, 4]), ([5, 3], [3, 5])],
)
def test_factors_that_do_not_nest_conflict(left: list[int], right: list[int]) -> None:
    whole = width(prod(left))
    split_product(whole, left)
    with pytest.raises(Conflict):
        split_product(whole, right)


def test_different_sizes_cannot_be_united() -> None:
    with pytest.raises(Conflict, match="sizes 3 and 4"):
        unify(fresh(3), fresh(4))


def test_one_is_never_a_width() -> None:
    assert fresh(1, width=True) == ONE
    assert merge([ONE, ONE]) == ONE


@given(size=st.integers(1, 2000), scaling=st.sampled_from([1, 1.5, 2, 3, 4, 7, 8, 16, 100]))
def test_a_plain_width_is_divided_and_rounded_up(size: int, scaling: float) -> None:
    dim = width(size)
    chosen = Sizes([dim], scaling)
    new = chosen.new(dim)
    assert new >= 1
    assert (new - 1) * scaling < size <= new * scaling + 1e-6
    assert chosen.ratio(dim) == size / new


@given(heads=st.integers(1, 32), size=st.integers(2, 128), scaling=st.sampled_from([1, 2, 4, 8, 16]))
def test_heads_divide_before_the_head_size_and_both_stay_whole(heads: int, size: int, scaling: int) -> None:
    count, inner = width(heads), width(size)
    mark_count(count)
    chosen = Sizes([merge([count, inner])], scaling)
    assert heads % chosen.new(count) == 0
    assert chosen.new(count) * chosen.new(inner) >= heads * size / scaling - 1e-9
    if chosen.new(inner) < size:
        left = scaling / chosen.ratio(count)
        assert not any(heads % d == 0 and chosen.ratio(count) < d <= scaling for d in range(1, heads + 1))
        assert chosen.new(inner) - 1 < size / left


def test_grouped_queries_keep_their_group() -> None:
    groups, times, size = width(2), fresh(4, fixed=True), width(16)
    mark_count(groups)
    query, key = merge([groups, times, size]), merge([groups, size])
    chosen = Sizes([query, key], 4)
    assert (chosen.new(query), chosen.new(key)) == (1 * 4 * 8, 8)


@given(channels=st.integers(1, 64).map(lambda n: n * 8), scaling=st.sampled_from([1, 2, 4, 8]))
def test_normalisation_groups_divide_the_new_width(channels: int, scaling: int) -> None:
    dim = width(channels)
    chosen = Sizes([dim], scaling)
    groups = chosen.groups(dim, 8)
    assert chosen.new(dim) % groups == 0
    assert 1 <= groups <= 8
    assert groups == 8 or scaling > 1


@given(new=st.integers(1, 64), factor=st.integers(1, 16))
def test_spread_positions_increase_and_stay_inside(new: int, factor: int) -> None:
    picks = spread_picks(new * factor, new)
    assert len(picks) == len(set(picks)) == new
    assert picks == sorted(picks)
    assert picks[0] >= 0
    assert picks[-1] < new * factor
