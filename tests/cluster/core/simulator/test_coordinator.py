"""The simulated settings against closed forms."""

import numpy as np
import pytest

from cluster.core.simulator.kinds import (
    ArrivingStudy,
    DeviceKind,
    blind,
    by_activity,
    completion_times_s,
    newest_first,
)
from cluster.core.simulator.squeezing import SimulatedStudy, asha_rung_ends, guest_speed, study_makespan_s

KINDS = (DeviceKind("new", 1, 0), DeviceKind("old", 1, 1))


def study(**changes) -> SimulatedStudy:
    given = {"trials": 16, "rung_ends": (10,), "reduction": 3, "fixed_s": 1.0, "each_s": 0.5}
    given |= {"largest": 16, "target_s": 7.0}
    return SimulatedStudy(**{**given, **changes})


def test_a_study_alone_takes_its_containers_one_after_the_other_and_the_target() -> None:
    # 2 full containers of 16 and one of 4: 10 epochs x (1 + 0.5 F)
    assert study_makespan_s(study(trials=36), [1.0]) == pytest.approx(10 * (9 + 9 + 3) + 7)


def test_equal_devices_split_a_container_before_it_starts() -> None:
    # the exclusive device takes what fits one container; the other sixteen are split in two
    assert study_makespan_s(study(trials=32), [1.0, 1.0, 1.0]) == pytest.approx(90 + 7)
    assert study_makespan_s(study(trials=32, largest=8), [1.0] * 4) == pytest.approx(50 + 7)


def test_bubbles_of_no_speed_change_nothing() -> None:
    assert study_makespan_s(study(trials=100), [1.0, 0.0, 0.0]) == study_makespan_s(study(trials=100), [1.0])


def test_the_exclusive_device_takes_over_what_runs_in_bubbles() -> None:
    # after 90 s the exclusive device is free and takes the other container, 0.1 x 90 s of 90 s done
    assert study_makespan_s(study(trials=32), [1.0, 0.1]) == pytest.approx(90 + 81 + 7)


def test_promotion_lets_a_third_go_on() -> None:
    found = study_makespan_s(study(trials=9, rung_ends=(3, 9), largest=9), [1.0])
    assert found == pytest.approx(3 * 5.5 + 6 * 2.5 + 7)


@pytest.mark.parametrize(
    ("grace", "reduction", "epochs", "ends"),
    [(3, 3, 100, (3, 9, 27, 81, 100)), (1, 2, 4, (1, 2, 4)), (9, 3, 5, (5,))],
)
def test_rungs_grow_by_the_reduction_up_to_the_budget(grace, reduction, epochs, ends) -> None:
    assert asha_rung_ends(grace, reduction, epochs) == ends


def test_a_guests_speed_counts_the_bubbles_that_fit_a_step() -> None:
    speed = guest_speed([0.004, 0.030, 0.060], 0.3, 0.005, step_share=0.8, latency_s=0.001)
    assert speed == pytest.approx((0.028 + 0.058) / 0.3)


def test_kinds_by_hand() -> None:
    one = ArrivingStudy(0.0, ((1, 10.0), (1, 20.0)), 25.0, 0.3, 2.0, 1.2)
    rng = np.random.default_rng(0)
    # rung 1 on the new device until 10, rung 2 until 30; the target, 1.2 x 25 s, would end 50 % later on the
    # old one and nothing else is free
    assert completion_times_s([one], KINDS, by_activity, rng) == [pytest.approx(40.0)]
    assert completion_times_s([one], KINDS, newest_first, rng) == [pytest.approx(40.0)]


def test_every_study_ends_whatever_chooses() -> None:
    rng = np.random.default_rng(3)
    studies = [
        ArrivingStudy(float(i), ((int(rng.integers(1, 5)), 3.0), (1, 2.0)), 4.0, 0.4, 2.0, 1.1)
        for i in range(12)
    ]
    for choose in (blind, newest_first, by_activity):
        times = completion_times_s(studies, KINDS, choose, np.random.default_rng(1))
        assert all(seconds >= 3.0 + 4.0 for seconds in times)
