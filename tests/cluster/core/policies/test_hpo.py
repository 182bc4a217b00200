"""Demand of studies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.core.policies.hpo import (
    KindOffer,
    bundles_to_release,
    bundles_wanted,
    grow,
    kind_for_trial,
    nodes_to_give_up,
    split_fused,
)


@pytest.mark.parametrize(
    ("alive", "fusion", "cap", "wanted"),
    [(100, 16, 32, 7), (100, 16, 4, 4), (0, 16, 4, 0), (3, 0, 9, 3), (5, 8, 0, 0)],
)
def test_a_study_asks_for_alive_over_fusion_up_to_its_cap(alive, fusion, cap, wanted):
    assert bundles_wanted(alive, fusion, cap) == wanted


def test_a_bundle_idle_for_more_than_a_minute_goes_back_unless_a_gang_is_pending_on_it():
    idle = {"a": 0.0, "b": 30.0, "c": 40.0, "d": 41.0}
    assert bundles_to_release(idle, 100.1, wanted=1, held=5) == ["a", "b", "c"]
    assert bundles_to_release(idle, 100.1, wanted=1, held=5, pending_on=["a"]) == ["b", "c"]
    assert bundles_to_release(idle, 100.1, wanted=4, held=5) == ["a"]
    assert bundles_to_release(idle, 60.0, wanted=0, held=5) == []


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 8), min_size=1), st.integers(0, 40))
def test_a_study_shrinks_to_what_it_wants_whole_nodes_first(bundles, wanted):
    kept = nodes_to_give_up(bundles, wanted)
    assert sum(kept.values()) == min(sum(bundles.values()), wanted)
    assert all(0 < kept[node] <= bundles[node] for node in kept)


def test_the_smallest_nodes_are_given_up_first():
    assert nodes_to_give_up({"big": 8, "small": 2, "middle": 4}, 9) == {"big": 8, "middle": 1}


@given(st.integers(1, 64), st.integers(1, 16))
def test_a_fused_trial_is_split_evenly(trials, bundles):
    parts = split_fused(trials, bundles)
    assert sum(parts) == trials
    assert len(parts) == min(trials, bundles)
    assert max(parts) - min(parts) <= 1


def test_splitting_comes_before_data_parallelism():
    plan = grow([16], 3, has_target=False)
    assert (plan.fused, plan.workers) == ((4, 4, 4, 4), 0)
    plan = grow([2], 3, has_target=True)
    assert (plan.fused, plan.workers) == ((1, 1), 3)


OFFERS = [KindOffer("new", 0, 80, 1.0), KindOffer("old", 1, 32, 1.8), KindOffer("oldest", 2, 12, 4.0)]


@pytest.mark.parametrize(
    ("target", "activity", "memory", "study_s", "trial_s", "kind"),
    [
        (False, 0.1, 8, 100, 1, "new"),  # surrogates go to the newest
        (True, 0.8, 8, 100, 1, "new"),  # a busy target too
        (True, 0.3, 8, 100, 10, "oldest"),
        (True, 0.3, 16, 100, 10, "old"),  # the oldest lacks the memory
        (True, 0.3, 8, 100, 50, "old"),  # the oldest would take 200 s
        (True, 0.3, 8, 100, 100, "new"),
        (True, 0.3, 99, 100, 1, None),
    ],
)
def test_a_target_that_leaves_a_device_half_idle_goes_to_the_oldest_that_does_not_delay(
    target, activity, memory, study_s, trial_s, kind
):
    found = kind_for_trial(
        OFFERS,
        is_target=target,
        activity=activity,
        memory_bytes=memory,
        job_remaining_s=study_s,
        trial_remaining_s=trial_s,
    )
    assert found == kind
