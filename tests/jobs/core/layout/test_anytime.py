"""Plans without proof: legal, never worse than where they start, the same every time."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.layout import Device, Instance, Layer, iteration_time
from jobs.core.layout.anytime import AnytimeSearch, Candidate
from jobs.core.layout.climbing import Climber
from jobs.core.layout.costs import violation
from jobs.core.layout.drafts import cut_menu, deal_evenly, deal_in_turn, groups_of, node_kinds
from jobs.core.layout.splits import SplitSearch
from jobs.core.layout.work import Work
from jobs.core.pipeline import one_f_one_b_makespan

EFFICIENCY = {1: 1.0, 2: 0.95, 4: 0.87, 8: 0.76}


def cluster(seed, nodes=4, replicas=2, memory=8.0):
    rng = random.Random(seed)
    devices = tuple(
        Device(f"g{i}", f"n{i // 8}", rng.choice([1.0, 1.0, 1.0, 0.5, 0.0]), memory) for i in range(8 * nodes)
    )
    return Instance(devices, (Layer(1.0, 2.0, 1.0),) * 24, 64, (1, 2, 4), EFFICIENCY, replicas, 32)


def found(instance):
    candidates: list[Candidate] = []
    search = AnytimeSearch(Work(instance), lambda: True)
    search.run(candidates.append)
    return search, candidates


@pytest.mark.parametrize(("seed", "replicas"), [(1, 1), (2, 2), (3, 4), (4, None)])
def test_every_candidate_is_legal_and_timed_exactly(seed, replicas):
    instance = cluster(seed, replicas=replicas)
    _, candidates = found(instance)
    assert candidates
    for candidate in candidates:
        assert violation(instance, candidate.layout) is None
        assert sum(replica.microbatches for replica in candidate.layout.replicas) == 32
        assert candidate.time == pytest.approx(iteration_time(instance, candidate.layout), rel=1e-12)


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_climbing_only_lowers_the_estimate_and_ends_legal(seed, smooth):
    instance = cluster(seed)
    search, candidates = found(instance)
    worst = max(candidates, key=lambda candidate: candidate.time)
    climber = Climber(search, search.smooth if smooth else search.estimate)
    steps = list(climber.climb(worst))
    for step in steps:
        assert violation(instance, step.layout) is None
        assert step.time == pytest.approx(iteration_time(instance, step.layout), rel=1e-12)
    assert min([worst.time, *(step.time for step in steps)]) <= worst.time
    assert steps == list(climber.climb(worst))


def test_a_cut_menu_offers_the_slow_device_in_apart_and_out():
    menu = cut_menu(((1.0, 9.0), (1.0, 9.0), (1.0, 9.0), (0.5, 9.0)), (1, 2))
    assert [(0, 2), (2, 4)] in menu
    assert [(0, 2), (2, 3), (3, 4)] in menu
    assert [(0, 2), (2, 3)] in menu
    assert all(end - start in (1, 2) for cut in menu for start, end in cut)


def test_dealing_uses_every_group_once():
    work = Work(cluster(3))
    groups = [g for kind in node_kinds(work) for g in groups_of(kind, kind.menu[0], work)]
    for deal in (deal_evenly, deal_in_turn):
        dealt = deal(groups, 3, 24)
        assert sorted(id(g) for pipe in dealt for g in pipe) == sorted(map(id, groups))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.5, 1.0, 1.9]), min_size=1, max_size=5), st.integers(1, 9), st.integers(5, 9)
)
def test_quick_split_has_the_shortest_possible_busiest_stage(rates, microbatches, layers):
    devices = (Device("g0", "n0", 1.0, 99.0),)
    work = Work(Instance(devices, (Layer(1.0, 2.0, 1.0),) * layers, None, (1,), {1: 1.0}, 1, microbatches))
    splits = SplitSearch(work)
    kinds = tuple(work.group_type(devices)._replace(rate=rate) for rate in rates)
    split = splits.quick(kinds)
    assert sum(split) == layers
    busiest = max(3 * count / rate for count, rate in zip(split, rates, strict=True))
    for level in {3 * n / rate for n in range(1, layers + 1) for rate in rates}:
        if level < busiest * (1 - 1e-9):
            assert sum(int(level * rate / 3 + 1e-9) for rate in rates) < layers or any(
                level * rate / 3 < 1 - 1e-9 for rate in rates
            )
    climbed = splits.climb(kinds, split, microbatches, lambda: True)
    assert splits.time(kinds, climbed, microbatches) <= splits.time(kinds, split, microbatches)
    assert splits.time(kinds, split, microbatches) == one_f_one_b_makespan(
        *splits.stage_times(kinds, split), microbatches
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.5, 1.0, 1.9]), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(4, 7),
    st.sampled_from([0.0, 0.7]),
    st.sampled_from([2.0, 99.0]),
)
def test_lean_split_has_the_least_upper_bound_of_all(rates, microbatches, layers, transfer_s, capacity):
    devices = (Device("g0", "n0", 1.0, 99.0),)
    work = Work(
        Instance(devices, (Layer(1.0, 2.0, 1.0),) * layers, None, (1,), {1: 1.0}, 1, microbatches, transfer_s)
    )
    splits = SplitSearch(work)
    kinds = tuple(work.group_type(devices)._replace(rate=rate, capacity=capacity) for rate in rates)
    limits = []
    for counts in product(range(min(layers, int(capacity)) + 1), repeat=len(kinds)):
        if sum(counts) == layers:
            used = [(kind, count) for kind, count in zip(kinds, counts, strict=True) if count]
            first, each = splits.line(*(tuple(column) for column in zip(*used, strict=True)))
            limits.append(first + (microbatches - 1) * each)
    lean = splits.lean(kinds, microbatches)
    if not limits:
        assert lean is None
        return
    first, each = splits.line(*lean)
    assert first + (microbatches - 1) * each == pytest.approx(min(limits), rel=1e-9)
    assert splits.holds(*lean)
