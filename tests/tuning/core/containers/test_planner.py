"""The planner: sizes by measurement and memory, even pieces, balanced devices, repacking that pays."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuning.core.containers import (
    Candidate,
    ShapeProfile,
    plan_packs,
    profile_from_json,
    run_seconds,
    should_merge,
    should_split,
    size_limit,
)
from tuning.core.containers.packing import even_pieces, longest_load

GB = 10**9


def profile(step_s: dict[int, float], **changes: object) -> ShapeProfile:
    values: dict[str, object] = {"shape": "s", "batch_size": 64, "steps_per_epoch": 10, "step_s": step_s}
    return ShapeProfile(**{**values, **changes})  # type: ignore[arg-type]


CHEAP = profile({1: 1.0, 2: 1.1, 8: 1.7, 32: 4.1})
DEAR = profile({1: 1.0, 2: 2.1, 8: 9.0})


def test_memory_grows_linearly_from_two_measurements() -> None:
    measured = profile({1: 1.0}, bytes={1: 2 * GB, 2: 3 * GB}, free_bytes=20 * GB)
    assert measured.memory_limit == 17  # 2 GB + 16 x 1 GB = 18 GB, 90 % of 20
    assert measured.predicted_bytes(17) == 18 * GB
    assert profile({1: 1.0}).memory_limit is None


def test_fused_sizes_count_more_than_a_trial_alone_and_memory_never_shrinks() -> None:
    measured = profile({1: 1.0}, bytes={1: 9 * GB, 2: 3 * GB, 8: 9 * GB}, free_bytes=20 * GB)
    assert measured.memory_limit == 17  # 1 GB and 1 GB each
    odd = profile({1: 1.0}, bytes={1: 9 * GB, 2: 8 * GB}, free_bytes=20 * GB)
    assert (odd.memory_limit, odd.predicted_bytes(3)) == (4, 12 * GB)


def test_a_container_never_plans_with_more_than_fits_but_one_trial_always_runs() -> None:
    tight = profile({1: 1.0, 2: 1.1}, bytes={1: 30 * GB, 2: 40 * GB}, free_bytes=GB)
    assert size_limit(tight, "auto") == 1
    assert size_limit(profile({1: 1.0}, bytes={1: GB, 2: 2 * GB}, free_bytes=4 * GB), 100) == 3


@pytest.mark.parametrize(
    ("fusion", "measured", "limit"),
    [
        ("auto", CHEAP, 128),  # the largest probe was the best one
        ("auto", DEAR, 1),  # fusing loses
        ("auto", profile({1: 1.0, 2: 1.2, 8: 2.0, 32: 12.0}), 8),
        ("off", CHEAP, 1),
        (5, CHEAP, 5),
        (5, profile({1: 1.0}, fusable=False, reason="no"), 1),
    ],
)
def test_the_size_follows_the_measured_rate(fusion: str | int, measured: ShapeProfile, limit: int) -> None:
    assert size_limit(measured, fusion) == limit


def test_seconds_are_interpolated_and_extrapolated() -> None:
    assert CHEAP.seconds(8) == 1.7
    assert CHEAP.seconds(5) == pytest.approx(1.4)
    assert CHEAP.seconds(64) == pytest.approx(7.3)
    assert profile({4: 2.0}).seconds(1) == 0.5


@given(st.integers(1, 200), st.integers(1, 50))
def test_pieces_are_even_and_lose_nobody(trials: int, count: int) -> None:
    pieces = even_pieces(list(range(trials)), count)
    assert [trial for piece in pieces for trial in piece] == list(range(trials))
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    limit=st.integers(1, 40),
    devices=st.integers(1, 5),
)
def test_a_plan_keeps_shapes_apart_respects_the_limit_and_places_everybody_once(
    counts: list[int], limit: int, devices: int
) -> None:
    candidates = [
        Candidate(100 * shape + n, f"shape{shape}", 0, 5)
        for shape, count in enumerate(counts)
        for n in range(count)
    ]
    packs = plan_packs(candidates, lambda _: CHEAP, lambda _: limit, [0.0] * devices)
    placed = [trial for pack in packs for trial in pack.trials]
    assert sorted(placed) == [candidate.trial for candidate in candidates]
    for pack in packs:
        assert len(pack.trials) <= limit
        assert {f"shape{trial // 100}" for trial in pack.trials} == {pack.shape}
        assert pack.seconds == run_seconds(CHEAP, len(pack.trials), 5)


def test_a_single_group_is_spread_over_the_devices() -> None:
    candidates = [Candidate(n, "s", 0, 20) for n in range(30)]
    packs = plan_packs(candidates, lambda _: CHEAP, lambda _: 64, [0.0, 0.0])
    assert [len(pack.trials) for pack in packs] == [15, 15]


def test_groups_of_unequal_work_balance_the_devices() -> None:
    candidates = [Candidate(n, "a", 0, 20) for n in range(30)] + [
        Candidate(100 + n, "b", 0, 20) for n in range(6)
    ]
    packs = plan_packs(candidates, lambda _: CHEAP, lambda _: 64, [0.0, 0.0])
    whole = sum(pack.seconds for pack in packs)
    assert longest_load(packs, [0.0, 0.0]) < 0.65 * whole


def test_earlier_epochs_run_first_and_trials_under_suspicion_run_alone() -> None:
    candidates = [
        Candidate(0, "s", 3, 6),
        Candidate(1, "s", 3, 6),
        Candidate(2, "s", 0, 9),
        Candidate(3, "s", 0, 9, alone=True),
    ]
    packs = plan_packs(candidates, lambda _: CHEAP, lambda _: 8, [0.0])
    assert [(pack.epoch, pack.trials) for pack in packs] == [(0, (2,)), (0, (3,)), (3, (0, 1))]


def test_survivors_merge_only_where_it_saves_more_than_it_costs() -> None:
    assert should_merge(CHEAP, 4, 4, 64, epochs=10, repack_s=1.0)
    assert not should_merge(CHEAP, 4, 4, 64, epochs=10, repack_s=1e6)
    assert not should_merge(DEAR, 4, 4, 64, epochs=10, repack_s=1.0)
    assert not should_merge(CHEAP, 4, 0, 64, epochs=10, repack_s=0.0)
    assert not should_merge(CHEAP, 4, 4, 4, epochs=10, repack_s=0.0)


def test_a_container_is_split_only_where_devices_are_idle_and_it_pays() -> None:
    assert should_split(CHEAP, 32, 2, epochs=10, repack_s=1.0)
    assert not should_split(CHEAP, 32, 1, epochs=10, repack_s=0.0)
    assert not should_split(CHEAP, 1, 4, epochs=10, repack_s=0.0)
    assert not should_split(CHEAP, 2, 2, epochs=1, repack_s=1.0)


def test_a_profile_survives_json() -> None:
    measured = profile({1: 1.0, 2: 1.5}, bytes={1: 5, 2: 7}, free_bytes=100, reason="x", fusable=False)
    assert profile_from_json(json.loads(json.dumps(measured.to_json()))) == measured
