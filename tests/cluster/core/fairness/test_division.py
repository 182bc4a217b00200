"""Fair division of a capacity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.core.errors import QuotaError
from cluster.core.fairness.division import divide, jain_index


@pytest.mark.parametrize(
    ("capacity", "requested", "guaranteed", "weight", "shares"),
    [
        (10, {"a": 20, "b": 20}, {"a": 2, "b": 4}, {"a": 1, "b": 1}, {"a": 4, "b": 6}),
        (10, {"a": 20, "b": 3}, {}, {"a": 1, "b": 1}, {"a": 7, "b": 3}),
        (9, {"a": 9, "b": 9}, {}, {"a": 2, "b": 1}, {"a": 6, "b": 3}),
        (4, {"a": 9, "b": 9}, {"a": 6, "b": 2}, {}, {"a": 3, "b": 1}),
        (10, {"a": 9, "b": 9}, {"b": 1}, {"a": 0, "b": 0}, {"a": 0, "b": 1}),
        (0, {"a": 5}, {}, {}, {"a": 0}),
    ],
)
def test_guarantees_first_then_by_weight_up_to_what_is_asked(capacity, requested, guaranteed, weight, shares):
    assert divide(capacity, requested, guaranteed, weight) == shares


AMOUNTS = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 5000), min_size=1)


@given(st.integers(0, 9000), AMOUNTS, AMOUNTS, st.dictionaries(st.sampled_from("abcde"), st.integers(0, 9)))
def test_nothing_is_left_while_somebody_asks_and_nobody_gets_more(capacity, requested, guaranteed, weight):
    share = divide(capacity, requested, guaranteed, weight)
    assert all(0 <= share[owner] <= requested[owner] for owner in requested)
    given_out = sum(share.values())
    assert given_out <= capacity
    hungry = [owner for owner in requested if share[owner] < requested[owner] and weight.get(owner, 1) > 0]
    assert given_out == capacity or not hungry


def test_negative_amounts_are_refused():
    with pytest.raises(QuotaError):
        divide(-1, {"a": 1}, {}, {})


def test_jain_index_is_one_where_all_have_the_same():
    assert jain_index([3.0, 3.0]) == 1.0
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == 0.25
