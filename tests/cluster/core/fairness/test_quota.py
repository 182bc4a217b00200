"""Guaranteed, borrowed and lent thousandths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.core.errors import QuotaError
from cluster.core.fairness.quota import QuotaBook, TeamQuota, quota_warnings


def book(*teams: TeamQuota, capacity: int = 10_000) -> QuotaBook:
    return QuotaBook(teams, {"gpu": capacity})


def test_without_teams_everything_passes():
    assert book().ask("", "gpu", 99_000).passes


def test_a_team_borrows_what_others_do_not_use():
    quotas = book(TeamQuota("a", guaranteed={"gpu": 4000}), TeamQuota("b", guaranteed={"gpu": 6000}))
    answer = quotas.ask("a", "gpu", 9000)
    assert (answer.passes, answer.borrowed) == (True, 5000)
    quotas.charge("b", "gpu", 6000)
    answer = quotas.ask("a", "gpu", 5000)
    assert (answer.rule, answer.room) == ("lent_out", 4000)
    assert quotas.ask("a", "gpu", 4000).passes


@pytest.mark.parametrize(("milli", "rule"), [(4000, ""), (5000, ""), (5001, "borrow_limit")])
def test_a_borrowing_limit_holds_whatever_is_free(milli, rule):
    quotas = book(TeamQuota("a", guaranteed={"gpu": 4000}, borrow_limit={"gpu": 1000}), TeamQuota("b"))
    assert quotas.ask("a", "gpu", milli).rule == rule


def test_what_may_not_be_lent_stays_with_its_team():
    quotas = book(TeamQuota("a"), TeamQuota("b", guaranteed={"gpu": 6000}, lend_limit={"gpu": 2000}))
    assert quotas.ask("a", "gpu", 6000).passes
    assert quotas.ask("a", "gpu", 6001).rule == "lent_out"
    assert quotas.ceiling("a", "gpu") == 6000
    assert quotas.ceiling("b", "gpu") == 10_000


def test_a_lowered_quota_makes_what_runs_borrowed_and_counts_nothing_twice():
    before = book(TeamQuota("a", guaranteed={"gpu": 8000}))
    before.charge("a", "gpu", 8000)
    after = book(TeamQuota("a", guaranteed={"gpu": 2000}))
    after.charge("a", "gpu", 8000)
    assert (before.borrowing("a", "gpu"), after.borrowing("a", "gpu")) == (0, 6000)
    after.charge("a", "gpu", -8000)
    assert after.in_use("a", "gpu") == 0
    with pytest.raises(QuotaError):
        after.charge("a", "gpu", -1)


@pytest.mark.parametrize(
    "bad",
    [
        {"guaranteed": {"gpu": -1}},
        {"guaranteed": {"gpu": 0.5}},
        {"borrow_limit": {"gpu": float("nan")}},
        {"lend_limit": {"gpu": True}},
        {"shares": -1},
    ],
)
def test_a_quota_that_is_no_amount_is_refused(bad):
    with pytest.raises(QuotaError, match="team 'a'"):
        TeamQuota("a", **bad)


def test_guarantees_beyond_the_cluster_are_told():
    teams = [TeamQuota("a", guaranteed={"gpu": 8000}), TeamQuota("b", guaranteed={"gpu": 4000})]
    assert quota_warnings(teams, {"gpu": 10_000}) == [
        "12 devices of kind gpu are guaranteed, the cluster has 10"
    ]
    assert quota_warnings(teams, {"gpu": 12_000}) == []


QUOTAS = st.builds(
    lambda guaranteed, borrow, lend: {
        "guaranteed": {"gpu": guaranteed},
        "borrow_limit": {} if borrow is None else {"gpu": borrow},
        "lend_limit": {} if lend is None else {"gpu": lend},
    },
    st.integers(0, 4000),
    st.none() | st.integers(0, 4000),
    st.none() | st.integers(0, 4000),
)


@given(
    st.lists(QUOTAS, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3000)), max_size=30),
)
def test_use_stays_within_capacity_limits_and_what_is_not_lent(quotas, asks):
    teams = [TeamQuota(f"t{number}", **quota) for number, quota in enumerate(quotas)]
    capacity = max(10_000, sum(team.guaranteed["gpu"] for team in teams))
    ledger = QuotaBook(teams, {"gpu": capacity})
    for number, milli in asks:
        team = teams[number % len(teams)]
        answer = ledger.ask(team.name, "gpu", milli)
        assert answer.passes == (milli <= answer.room)
        if not answer.passes:
            continue
        ledger.charge(team.name, "gpu", milli)
        used = ledger.in_use(team.name, "gpu")
        assert used <= ledger.ceiling(team.name, "gpu")
        # A guarantee passes even where borrowers hold the devices: those are then to be taken back.
        if used > team.guaranteed["gpu"]:
            assert sum(ledger.in_use(other.name, "gpu") for other in teams) <= capacity
        limit = team.borrow_limit.get("gpu")
        assert limit is None or used <= team.guaranteed["gpu"] + limit


@given(st.lists(QUOTAS, min_size=2, max_size=4), st.integers(1, 4000))
def test_nobody_can_borrow_a_guarantee_that_may_not_be_lent(quotas, milli):
    teams = [TeamQuota(f"t{number}", **quota) for number, quota in enumerate(quotas)]
    ledger = QuotaBook(teams, {"gpu": sum(team.guaranteed["gpu"] for team in teams)})
    while ledger.ask("t1", "gpu", milli).passes:
        ledger.charge("t1", "gpu", milli)
    kept = teams[0].guaranteed["gpu"] - teams[0].lend_limit.get("gpu", teams[0].guaranteed["gpu"])
    assert ledger.capacity["gpu"] - ledger.in_use("t1", "gpu") >= min(kept, teams[0].guaranteed["gpu"])
