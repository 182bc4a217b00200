"""Dealing micro-batches against every way to deal them."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.core.layout.allocation import level, level_out, share

lines = st.lists(st.tuples(st.floats(0.0, 9.0), st.floats(0.01, 5.0)), min_size=1, max_size=4)


def dealt(total, replicas):
    return [counts for counts in product(range(1, total + 1), repeat=replicas) if sum(counts) == total]


@given(lines, st.integers(0, 8))
def test_share_is_the_best_of_all_deals(lines, spare):
    total = len(lines) + spare

    def ending(counts):
        return max(first + (count - 1) * each for (first, each), count in zip(lines, counts, strict=True))

    counts = share(lines, total)
    assert sum(counts) == total
    assert min(counts) >= 1
    assert ending(counts) == pytest.approx(min(map(ending, dealt(total, len(lines)))))


@given(
    st.lists(st.lists(st.floats(0.0, 3.0), min_size=12, max_size=12), min_size=1, max_size=4),
    st.integers(0, 6),
    st.data(),
)
def test_levelling_any_deal_ends_at_the_best_one(steps, spare, data):
    """Times grow by arbitrary steps, as makespans do."""
    total = len(steps) + spare

    def time(index, count):
        return sum(steps[index][:count])

    start = data.draw(st.sampled_from(dealt(total, len(steps))))
    counts, ending = level_out(list(start), time)
    assert sum(counts) == total
    assert ending == max(time(i, c) for i, c in enumerate(counts))
    best = min(max(time(i, c) for i, c in enumerate(counts)) for counts in dealt(total, len(steps)))
    assert ending == pytest.approx(best, rel=1e-9, abs=1e-12)


def test_huge_numbers_of_micro_batches_are_dealt_at_once():
    assert share([(3.0, 1.0), (3.0, 2.0)], 900_000) == [600_000, 300_000]


@given(lines, st.integers(0, 8))
@example([(1e-12, 0.7), (0.0, 0.3)], 0)  # times far apart in size: nothing may be lost by cancellation
@example([(1e-12, 0.05)], 0)
def test_divided_micro_batches_end_together_and_no_later_than_whole_ones(lines, spare):
    total = len(lines) + spare
    time = level(lines, total)
    run = sum(max(1.0, 1 + (time - first) / each) for first, each in lines)
    assert time >= max(first for first, _ in lines)
    assert run >= total * (1 - 1e-9)
    if time > max(first for first, _ in lines):
        assert run == pytest.approx(total)
    counts = share(lines, total)
    ending = max(first + (count - 1) * each for (first, each), count in zip(lines, counts, strict=True))
    assert time <= ending * (1 + 1e-9)
