"""Fair Tree ranks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.core.errors import QuotaError
from cluster.core.fairness.tree import Account, fair_ranks, level_share


def test_a_branch_below_its_share_puts_all_its_users_first():
    accounts = [
        Account("busy", shares=1),
        Account("idle", shares=1),
        Account("b1", "busy", usage=90),
        Account("b2", "busy", usage=0),
        Account("i1", "idle", usage=5),
        Account("i2", "idle", usage=5),
    ]
    assert fair_ranks(accounts) == {"i1": 1.0, "i2": 1.0, "b2": 0.5, "b1": 0.25}


def test_twice_the_shares_allow_twice_the_usage():
    accounts = [Account("a", shares=2, usage=200), Account("b", shares=1, usage=100)]
    assert set(fair_ranks(accounts).values()) == {1.0}


def test_branches_with_equal_level_shares_are_ranked_together():
    accounts = [
        Account("x"),
        Account("y"),
        Account("x1", "x", usage=3),
        Account("x2", "x", usage=1),
        Account("y1", "y", usage=2),
        Account("y2", "y", usage=2),
    ]
    assert sorted(fair_ranks(accounts), key=lambda name: -fair_ranks(accounts)[name]) == [
        "x2",
        "y1",
        "y2",
        "x1",
    ]


@pytest.mark.parametrize(
    ("shares", "usage", "expected"), [(1, 0, math.inf), (0, 0, 0.0), (0, 5, 0.0), (1, 50, 1.0), (1, 25, 2.0)]
)
def test_level_share(shares, usage, expected):
    assert level_share(shares, 2, usage, 100) == expected


@pytest.mark.parametrize(
    "accounts",
    [
        [Account("a"), Account("a")],
        [Account("a", "nobody")],
        [Account("a", "b"), Account("b", "a")],
        [Account("a", "a")],
        [Account("a", shares=-1)],
        [Account("a", usage=float("nan"))],
        [Account("")],
    ],
)
def test_a_tree_that_contradicts_itself_is_refused(accounts):
    with pytest.raises(QuotaError):
        fair_ranks(accounts)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1e6), st.integers(0, 3)), min_size=1, max_size=12))
def test_every_leaf_has_a_factor_and_less_usage_never_ranks_lower(rows):
    accounts = [Account(f"t{n}") for n in range(4)]
    accounts += [Account(f"u{n}", f"t{team}", shares, usage) for n, (shares, usage, team) in enumerate(rows)]
    factors = fair_ranks(accounts)
    empty = {f"t{n}" for n in range(4)} - {account.parent for account in accounts}
    assert set(factors) == {f"u{n}" for n in range(len(rows))} | empty
    assert all(0 < factor <= 1 for factor in factors.values())
    relieved = [Account(a.name, a.parent, a.shares, 0.0) if a.name == "u0" else a for a in accounts]
    if rows[0][0] > 0:
        assert fair_ranks(relieved)["u0"] >= factors["u0"]
