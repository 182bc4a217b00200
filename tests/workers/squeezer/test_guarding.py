"""Lending ends by itself where it costs too much, and is tried again later and later."""

from cluster.core.coordinator import LendingPolicy, Slowdown
from workers.squeezer.guarding import LendingGuard

HARM, FINE = Slowdown(0.08, 0.05, 0.11, 90, 10), Slowdown(0.0, -0.01, 0.01, 90, 10)


def test_lending_stops_and_resumes_after_twice_as_long_each_time() -> None:
    guard = LendingGuard(LendingPolicy(limit=0.02, retry_s=100.0))
    assert guard.judge(FINE, 0.0).action == "keep"
    assert guard.judge(HARM, 10.0).action == "stop"
    assert not guard.lending
    assert guard.judge(None, 109.0).action == "wait"
    assert guard.judge(None, 110.0).action == "resume"
    assert guard.lending
    assert guard.judge(HARM, 200.0).action == "stop"
    assert guard.judge(None, 399.0).action == "wait"
    assert guard.judge(None, 400.0).action == "resume"


def test_an_operators_switch_counts_as_no_fault_of_the_guests() -> None:
    guard = LendingGuard(LendingPolicy())
    guard.switched_off = True
    assert guard.judge(FINE, 0.0).action == "stop"
    assert guard.judge(FINE, 1e6).action == "wait"
    guard.switched_off = False
    assert guard.judge(None, 1e6).action == "resume"
    assert guard.stops == 0
