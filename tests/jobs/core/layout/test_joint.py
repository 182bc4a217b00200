"""Whole replicas chosen together: legal layouts, as fast as claimed and never faster than the optimum."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jobs.core.layout import Device, Instance, Layer, iteration_time
from jobs.core.layout.anytime import AnytimeSearch
from jobs.core.layout.costs import violation
from jobs.core.layout.grouping import TooLarge
from jobs.core.layout.joint import JointSearch
from jobs.core.layout.packing import Packing
from jobs.core.layout.shapes import Shapes
from jobs.core.layout.supply import Supply
from jobs.core.layout.work import Work

EFFICIENCY = {1: 1.0, 2: 0.95, 4: 0.87, 8: 0.76}


@st.composite
def instances(draw):
    speeds = draw(st.lists(st.sampled_from([1.0, 1.0, 0.6, 0.3]), min_size=2, max_size=5))
    nodes = draw(st.integers(1, 2))
    devices = tuple(
        Device(f"g{i}", f"n{i % nodes}", speed, draw(st.sampled_from([2.0, 50.0])) if nodes == 1 else 50.0)
        for i, speed in enumerate(speeds)
    )
    return Instance(
        devices,
        (Layer(1.0, draw(st.sampled_from([1.0, 2.0])), 1.0),) * draw(st.integers(1, 5)),
        None,
        draw(st.sampled_from([(1,), (1, 2), (1, 2, 4)])),
        EFFICIENCY,
        draw(st.sampled_from([1, 2, None])),
        draw(st.integers(2, 8)),
        draw(st.sampled_from([0.0, 0.0, 0.4])),
    )


def search_of(instance):
    return JointSearch(AnytimeSearch(Work(instance), lambda: True), instance.replicas or 2, lambda: 60.0)


def legal(instance, candidate):
    """Whether a candidate is a layout of the instance that takes as long as it says."""
    layout = candidate.layout
    used = [name for replica in layout.replicas for stage in replica.stages for name in stage.devices]
    return (
        violation(instance, layout) is None
        and len(set(used)) == len(used)
        and sum(replica.microbatches for replica in layout.replicas) == instance.microbatches
        and all(sum(s.layers for s in r.stages) == len(instance.layers) for r in layout.replicas)
        and all(
            len({instance.device(name).node for name in stage.devices}) == 1
            for replica in layout.replicas
            for stage in replica.stages
        )
        and iteration_time(instance, layout) == pytest.approx(candidate.time)
    )


@settings(max_examples=60, deadline=None)
@given(instance=instances(), slack=st.sampled_from([1.05, 1.5, 3.0]))
def test_every_plan_is_legal_and_none_beats_the_optimum(instance, slack, optimum):
    best = optimum(instance)
    assume(best < math.inf)
    try:
        search = search_of(instance)
    except TooLarge:
        assume(False)
    last = best * slack
    for candidate in search.improve(best * slack):
        assert legal(instance, candidate)
        assert best * (1 - 1e-9) <= candidate.time < last
        last = candidate.time


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([1.0, 0.5, 0.3]), st.integers(1, 3)), min_size=1, max_size=5),
    st.floats(5.0, 80.0),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([(1.0, 2.0), (1.0, 1.0), (2.0, 0.5)]),
)
def test_a_shape_runs_the_most_microbatches_that_simulation_allows(stages, time, transfer_s, layer):
    devices = tuple(Device(f"g{i}", f"n{i}", rate, 99.0) for i, (rate, _) in enumerate(stages))
    count = sum(layers for _, layers in stages)
    work = Work(Instance(devices, (Layer(*layer, 1.0),) * count, None, (1,), {1: 1.0}, 1, 9, transfer_s))
    shapes = Shapes(Supply(work), 9.0)
    rates = shapes.supply.rates.tolist()
    shape = tuple((rates.index(rate), layers) for rate, layers in stages)
    most = shapes.most(shape, time)
    assert most == 0 or shapes.time(shape, most) <= time * (1 + 1e-8)
    assert shapes.time(shape, most + 1) > time
    assert shapes.at_most(shape, time) >= most


def cluster(speeds):
    devices = tuple(Device(f"g{i}", f"n{i // 8}", speeds.get(i, 1.0), 80.0) for i in range(64))
    return Instance(devices, (Layer(1.0, 2.0, 10.0),) * 20, 64, (1, 2, 4, 8), EFFICIENCY, 2, 24)


def test_proposals_hold_the_model_and_are_new():
    work = Work(cluster({3: 0.5, 20: 0.0}))
    shapes = Shapes(Supply(work), 12.0)
    natural = shapes.supply.natural()
    prices = natural * 24 / shapes.supply.worth(natural)
    first = shapes.proposals(prices, 60.0, 0.0, 2.0, ())
    assert first
    capacities = shapes.supply.capacities
    for shape in first:
        assert sum(layers for _, layers in shape) == 20
        assert all(layers <= capacities[number] for number, layers in shape)
    assert not set(first) & set(shapes.proposals(prices, 60.0, 0.0, 2.0, set(first)))


def test_packing_never_uses_a_device_twice_and_serves_weaker_types_with_stronger_groups():
    work = Work(cluster({3: 0.5}))
    supply = Supply(work)
    packing = Packing(supply, 2)
    slow = int(np.flatnonzero(np.isclose(supply.rates, 8 * 0.76 * 0.5))[0])
    # Both replicas want the only slow group of eight there is.
    shape = ((slow, 10), (slow, 10))
    packed = packing.choose([shape], [12], 24, 10.0)
    assert packed is not None
    assert packed.chosen == [0, 0]
    groups = packed.groups[slow]
    assert len(groups) >= 4
    assert all(group.kind.rate >= supply.rates[slow] for group in groups)
    used = [d.id for rows in packed.groups.values() for group in rows for d in group.devices]
    assert len(used) == len(set(used))


def test_packing_says_when_there_are_too_few_groups():
    work = Work(cluster({}))
    supply = Supply(work)
    fast = int(supply.rates.argmax())
    shape = tuple((fast, 2) for _ in range(10))  # ten groups of eight, twice, on eight nodes
    packing = Packing(supply, 2)
    assert packing.choose([shape], [12], 24, 10.0) is None
    assert packing.prices([shape], [12]) is None


def test_the_same_instance_gets_the_same_plans_and_time_ends_the_search():
    instance = cluster({3: 0.5, 20: 0.0, 41: 0.25})
    plans = [[c.layout for c in search_of(instance).improve(75.0)] for _ in range(2)]
    assert plans[0] == plans[1]
    assert plans[0]
    search = JointSearch(AnytimeSearch(Work(instance), lambda: True), 2, lambda: 0.0)
    assert len(list(search.improve(75.0))) <= 1


def test_unlike_layers_are_not_for_this_search():
    instance = cluster({})
    layers = (*instance.layers[:-1], Layer(2.0, 2.0, 10.0))
    with pytest.raises(TooLarge):
        search_of(replace(instance, layers=layers))


def test_one_more_replica_is_worth_its_price_and_no_more():
    supply = Supply(Work(cluster({})))
    fast = int(supply.rates.argmax())
    shapes, run = [((fast, 10), (fast, 10))], [12]
    two, three = (Packing(supply, replicas).prices(shapes, run) for replicas in (2, 3))
    assert two is not None
    assert three is not None
    # Eight groups of eight for two or three replicas of two: groups are plenty, so a replica's price is all.
    assert two.value == pytest.approx(24)
    assert two.replica == pytest.approx(three.value - two.value)
    assert two.groups == pytest.approx(np.zeros(len(supply.types)))


@pytest.mark.parametrize("speeds", [{}, {3: 0.5, 20: 0.0, 41: 0.25}])
def test_an_open_number_of_replicas_is_at_least_as_good_as_any_given_one(speeds):
    instance = cluster(speeds)

    def fastest(replicas, start):
        search = JointSearch(
            AnytimeSearch(Work(replace(instance, replicas=replicas)), lambda: True), start, lambda: 60.0
        )
        return min((candidate.time for candidate in search.improve(75.0)), default=math.inf)

    given = [fastest(replicas, replicas) for replicas in (1, 2, 3, 4, 6, 8)]
    assert fastest(None, 2) <= min(given) * 1.005


def test_at_first_an_open_number_of_replicas_is_tried_widely_but_for_too_many_to_have_room():
    work = Work(replace(cluster({}), replicas=None))  # 64 devices of 80 hold 25 models of 200
    shapes = Shapes(Supply(work), 24 / 2)
    natural = shapes.supply.natural()
    prices = natural * 24 / shapes.supply.worth(natural)
    first = shapes.proposals(prices, 75.0, 0.0, 2.0, ())
    run = {shapes.most(shape, 75.0) for shape in first}
    assert min(run) <= 4
    assert max(run) >= 20


def test_replicas_beyond_the_microbatches_there_are_are_left_out():
    instance = replace(cluster({}), replicas=None, microbatches=2)
    search = search_of(instance)
    fast = int(search.supply.rates.argmax())
    shapes = [((fast, 10), (fast, 10))]
    packed = search.packing.choose(shapes, [1], 2, 10.0)
    assert packed is not None
    assert len(packed.chosen) == 4
    candidate = search._finished(packed, shapes, [1])
    assert [replica.microbatches for replica in candidate.layout.replicas] == [1, 1]
    assert legal(instance, candidate)
