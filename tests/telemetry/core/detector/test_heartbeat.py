"""Who has stopped, who is merely quiet, and when the monitor was away itself."""

import pytest

from telemetry.core.detector import HeartbeatMonitor, Ledger, Subject


@pytest.fixture
def monitor():
    return HeartbeatMonitor(Ledger(), Subject)


def beat(monitor, ranks, seconds, interval=1.0, progress=None):
    """Let ranks beat at these times."""
    for second in seconds:
        for rank in ranks:
            monitor.beat(rank, second * interval, progress)


def told(monitor):
    return [(str(v.kind), v.subject.rank, v.state) for v in monitor.ledger.verdicts]


def test_a_rank_that_falls_silent_is_stopped_after_ten_of_its_intervals(monitor):
    beat(monitor, range(4), range(20), progress=7)
    beat(monitor, (0, 1, 3), range(20, 29), progress=9)
    monitor.tick(29.0)
    assert told(monitor) == []
    beat(monitor, (0, 1, 3), range(29, 40), progress=9)
    assert told(monitor) == [("fail_stop", 2, "open")]
    (verdict,) = monitor.ledger.verdicts
    assert (verdict.first_step, verdict.detected_step) == (7, 9)


def test_frequent_beats_still_leave_five_seconds(monitor):
    beat(monitor, range(4), range(100), interval=0.1)
    beat(monitor, (0, 1, 3), range(100, 140), interval=0.1)
    assert told(monitor) == []
    beat(monitor, (0, 1, 3), range(140, 170), interval=0.1)
    assert told(monitor) == [("fail_stop", 2, "open")]


def test_progress_without_beats_is_life(monitor):
    beat(monitor, range(4), range(20))
    for second in range(20, 144):
        beat(monitor, (0, 1, 3), [second])
        monitor.step(2, second)
    monitor.tick(144.0)
    assert told(monitor) == []


def test_a_rank_that_comes_back_is_cleared(monitor):
    beat(monitor, range(4), range(20))
    beat(monitor, (0, 1, 3), range(20, 40))
    beat(monitor, range(4), range(40, 60))
    assert told(monitor) == [("fail_stop", 2, "cleared")]


def test_when_most_go_silent_at_once_it_is_the_monitor(monitor):
    beat(monitor, range(4), range(20))
    for second in range(20, 40):
        monitor.tick(float(second))
    assert told(monitor) == [("monitor_fault", None, "open")]
    beat(monitor, range(4), range(40, 60))
    assert told(monitor) == [("monitor_fault", None, "cleared")]


def test_a_monitor_that_stalled_blames_nobody_and_then_judges_again(monitor):
    beat(monitor, range(4), range(20))
    beat(monitor, (0, 1, 3), range(35, 44))
    assert told(monitor) == [("monitor_fault", None, "cleared")]
    beat(monitor, (0, 1, 3), range(44, 60))
    assert told(monitor) == [("monitor_fault", None, "cleared"), ("fail_stop", 2, "open")]


def test_a_clock_that_goes_backwards_is_noted_and_ages_nobody(monitor):
    beat(monitor, range(4), range(20))
    monitor.beat(1, -41.0, None)
    beat(monitor, range(4), range(20, 40))
    assert told(monitor) == []
    assert monitor.backwards == 1


def test_a_pause_of_beats_at_a_checkpoint_is_covered_by_the_steps_of_others(monitor):
    beat(monitor, range(4), range(0, 60, 2))
    beat(monitor, range(4), range(60, 76, 15))
    assert told(monitor) == []
