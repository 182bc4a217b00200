import pytest
from hypothesis import given
from hypothesis import strategies as st

from web.throttling import weigh


def spend(times, per_minute):
    full_at, allowed = None, []
    for now in times:
        verdict, full_at = weigh(full_at, now, per_minute)
        allowed.append(verdict.allowed)
    return allowed


@pytest.mark.parametrize("per_minute", [1, 2, 7, 60, 6000])
def test_a_quiet_caller_may_send_exactly_a_minutes_worth_at_once(per_minute):
    assert spend([1e9] * (per_minute + 3), per_minute) == [True] * per_minute + [False] * 3


def test_the_allowance_comes_back_evenly():
    assert spend([0, 0, 0, 29, 30, 31, 60, 61], 2) == [True, True, False, False, True, False, True, False]


@given(st.lists(st.floats(0, 300), max_size=60).map(sorted), st.integers(1, 20))
def test_no_minute_ever_sees_more_than_twice_the_allowance(times, per_minute):
    passed = [t for t, ok in zip(times, spend(times, per_minute), strict=True) if ok]
    for start in passed:
        assert sum(start <= t < start + 60 for t in passed) <= 2 * per_minute


@given(st.integers(1, 500), st.floats(0, 59))
def test_who_waits_as_told_is_let_through(per_minute, pause):
    full_at = None
    for _ in range(per_minute):
        verdict, full_at = weigh(full_at, 1000.0, per_minute)
    refused, full_at = weigh(full_at, 1000.0, per_minute)
    assert not refused.allowed
    assert weigh(full_at, 1000.0 + refused.retry_after_s + 1e-3, per_minute)[0].allowed


def test_a_caller_over_the_rate_is_told_when_to_come_again_and_others_are_not_held_up(world, settings):
    settings.RATES = {"all": 3, "submit": 1, "export": 1}
    answers = [world.ask("viewer", "GET", "/api/v1/me") for _ in range(4)]
    assert [a.status_code for a in answers] == [200, 200, 200, 429]
    assert [a["RateLimit-Remaining"] for a in answers] == ["2", "1", "0", "0"]
    assert answers[0]["RateLimit-Limit"] == "3"
    assert answers[3].json()["type"] == "urn:forebay:problem:too-many-requests"
    assert 1 <= int(answers[3]["Retry-After"]) <= 20
    assert world.ask("researcher", "GET", "/api/v1/me").status_code == 200


def test_submitting_and_exporting_have_allowances_of_their_own(world, job, settings):
    settings.RATES = {"all": 100, "submit": 1, "export": 1}
    body = {"kind": "study", "spec": {"workload": "tiny"}}
    assert [world.ask("researcher", "POST", "/api/v1/jobs", body).status_code for _ in range(2)] == [202, 429]
    path = f"/api/v1/jobs/{job.pk}/trials.csv"
    assert [world.ask("researcher", "GET", path).status_code for _ in range(2)] == [200, 429]
    assert world.ask("researcher", "GET", "/api/v1/me").status_code == 200
