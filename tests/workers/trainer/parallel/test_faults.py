"""Injected faults are real, visible where they should be, and end when they are told to."""

import statistics

import pytest

from workers.trainer.parallel.errors import ImpossibleRun
from workers.trainer.parallel.faults import Fault


@pytest.mark.parametrize(
    ("mode", "factor", "seconds", "words"),
    [
        ("melt", 2.0, 0.0, "none of slow, stop, flap, stall"),
        ("slow", 0.5, 0.0, "factor is 0.5"),
        ("slow", float("nan"), 0.0, "factor is nan"),
        ("slow", 1e9, 0.0, "must lie in 1 to 100"),
        ("slow", 2.0, -1.0, "seconds is -1"),
        ("flap", 2.0, 0.0, "needs more than 0"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(mode, factor, seconds, words):
    with pytest.raises(ImpossibleRun, match=words):
        Fault().inject(mode, factor, seconds)


def test_a_healthy_rank_loses_no_time():
    fault = Fault()
    assert fault.factor() == 1.0
    assert fault.suffer(5.0) < 1.0


def test_a_slow_rank_adds_its_factor_to_the_time_it_worked_and_heals():
    fault = Fault()
    fault.inject("slow", 3.0)
    assert fault.suffer(0.01) >= 0.02
    fault.inject("none")
    assert fault.factor() == 1.0


def test_a_stall_ends_after_its_time():
    fault = Fault()
    fault.inject("stall", seconds=0.05)
    assert fault.suffer(0.0) >= 0.04
    assert fault.mode == "none"


def test_a_flapping_rank_is_slow_and_healthy_in_turns():
    fault, seen = Fault(), []
    fault.inject("flap", 3.0, seconds=0.02)
    while len(seen) < 4:
        if not seen or fault.factor() != seen[-1]:
            seen.append(fault.factor())
    assert sorted(set(seen)) == [1.0, 3.0]


def test_a_slow_rank_is_the_one_whose_chunks_got_longer_and_a_stalled_one_only_beats(crew, layout_of):
    run = crew(layout_of((8, [([0], 2), ([1], 2)])), steps=100_000)
    run.reached(2)
    run.fleet.inject(1, "slow", 4.0)
    first = max(event["step"] for event in run.of("iteration")) + 2
    run.until(lambda: len(run.of("iteration", step=first)) == 2)

    def throttled(rank):
        (row,) = run.of("iteration", step=first, plan_rank=rank)
        return [chunk["throttled_seconds"] / chunk["seconds"] for chunk in row["chunks"]]

    # a sleep never ends early, but on a busy machine it may end late, and a rank be held up beside its chunk
    assert statistics.median(throttled(1)) > 0.7
    assert statistics.median(throttled(0)) < 0.5
    run.fleet.inject(1, "stall")
    beats = len(run.of("heartbeat", plan_rank=1))
    run.until(lambda: len(run.of("heartbeat", plan_rank=1)) > beats + 1)
    stuck = max(event["step"] for event in run.of("iteration", plan_rank=1))
    beats = len(run.of("heartbeat", plan_rank=1))
    run.until(lambda: len(run.of("heartbeat", plan_rank=1)) > beats)
    assert max(event["step"] for event in run.of("iteration", plan_rank=1)) == stuck
    run.fleet.inject(1, "none")
    run.reached(stuck + 2)
    run.fleet.checkpoint()
    assert run.until(lambda: run.of("checkpoint"))[0]["step"] > stuck
