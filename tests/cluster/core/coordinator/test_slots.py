"""Who gets a bubble, and how many trials are fused for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.core.coordinator import (
    GuestProfile,
    Slot,
    choose_guest,
    fusion_for_slots,
    largest_fitting,
    refusal,
)

MIB = 2**20
SLOT = Slot(slot=3, expected_s=0.030, period_s=0.3, free_bytes=100 * MIB)


@pytest.mark.parametrize(
    ("step_s", "held_mib", "elapsed_s", "reason"),
    [
        (0.005, 50, 0.0, None),
        (0.024, 50, 0.0, None),
        (0.025, 50, 0.0, "a step takes 25 ms, 24 ms are 80% of the bubble"),
        (0.005, 90, 0.0, None),
        (0.005, 91, 0.0, "91 MiB needed, 90 MiB are 90% of what the device has left"),
        (0.010, 50, 0.0193, None),
        (0.010, 50, 0.025, "a step takes 10 ms, only 4.4 ms of the bubble are left"),
        (0.010, 50, 0.040, "a step takes 10 ms, only 0 ms of the bubble are left"),
    ],
)
def test_a_guest_is_refused_with_the_rule_and_its_numbers(step_s, held_mib, elapsed_s, reason) -> None:
    assert refusal(GuestProfile("g", 4, step_s, held_mib * MIB), SLOT, elapsed_s) == reason


@pytest.mark.parametrize(
    ("guests", "chosen"),
    [
        ([], None),
        ([("a", 16, 0.010, 0.0), ("b", 8, 0.006, 0.0)], "a"),
        ([("a", 16, 0.040, 0.0), ("b", 8, 0.006, 0.0)], "b"),
        ([("a", 16, 0.040, 0.0), ("b", 8, 0.060, 0.0)], None),
        ([("a", 8, 0.010, 5.0), ("b", 8, 0.010, 1.0)], "b"),
        ([("b", 8, 0.010, 1.0), ("a", 8, 0.010, 1.0)], "a"),
    ],
)
def test_the_largest_container_that_fits_gets_the_bubble(guests, chosen) -> None:
    profiles = [GuestProfile(name, size, step_s, MIB, ran_s) for name, size, step_s, ran_s in guests]
    decision = choose_guest(SLOT, profiles)
    assert decision.guest == chosen
    assert decision.reason


def test_a_skipped_bubble_names_the_guest_that_was_nearest() -> None:
    guests = [GuestProfile("slow", 8, 0.060, MIB), GuestProfile("near", 4, 0.026, MIB)]
    assert choose_guest(SLOT, guests).reason.startswith("near: a step takes 26 ms")


@pytest.mark.parametrize(
    ("unfitted_s", "held_mib", "preemptible", "rule", "chosen"),
    [
        (1.9, 1, True, "step", None),
        (2.1, 1, True, "pieces", "g"),
        (2.1, 1, False, "step", None),
        (9.0, 95, True, "memory", None),
    ],
)
def test_a_step_that_fits_no_bubble_goes_on_in_pieces_where_the_device_takes_itself_back(
    unfitted_s, held_mib, preemptible, rule, chosen
) -> None:
    guest = GuestProfile("g", 1, 0.060, held_mib * MIB, unfitted_s=unfitted_s)
    decision = choose_guest(SLOT, [guest], preemptible=preemptible)
    assert (decision.guest, decision.rule) == (chosen, rule)


def test_whole_steps_go_before_pieces_and_of_pieces_the_one_that_has_waited_longest() -> None:
    late = [
        GuestProfile("a", 8, 0.060, MIB, unfitted_s=5.0),
        GuestProfile("b", 8, 0.060, MIB, unfitted_s=7.0),
    ]
    assert choose_guest(SLOT, late, preemptible=True).guest == "b"
    whole = GuestProfile("c", 1, 0.010, MIB)
    assert choose_guest(SLOT, [*late, whole], preemptible=True).guest == "c"


@given(
    st.floats(1e-4, 0.05),
    st.floats(1e-5, 0.01),
    st.floats(0.0, 50.0),
    st.floats(0.1, 20.0),
    st.lists(st.integers(1, 64), min_size=1, max_size=6),
)
def test_the_largest_fitting_size_fits_and_no_larger_one_does(
    fixed_s, each_s, fixed_mb, each_mb, sizes
) -> None:
    def step_s(size: int) -> float:
        return fixed_s + each_s * size

    def held(size: int) -> float:
        return (fixed_mb + each_mb * size) * MIB

    size, reason = largest_fitting(SLOT, step_s, held, sizes)
    fits = {s: refusal(GuestProfile("", s, step_s(s), round(held(s))), SLOT) is None for s in sizes}
    assert size == max((s for s in sizes if fits[s]), default=None)
    assert reason


def test_a_smaller_container_wins_where_the_larger_one_fits_few_bubbles() -> None:
    slots = [Slot(0, 0.010, 0.3, 100 * MIB)] * 5 + [Slot(5, 0.030, 0.3, 100 * MIB)]
    size, rates = fusion_for_slots(slots, lambda f: 0.002 + 0.001 * f, lambda f: f * MIB, (4, 16))
    assert size == 4
    assert rates[4] > rates[16] > 0


def test_no_size_is_chosen_where_no_bubble_fits_a_step() -> None:
    size, rates = fusion_for_slots([SLOT], lambda f: 1.0, lambda f: MIB, (1, 2))
    assert size is None
    assert rates == {1: 0.0, 2: 0.0}
