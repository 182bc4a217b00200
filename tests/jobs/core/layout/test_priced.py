"""The tight bound never exceeds what is possible, and says more than the one by devices alone."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from jobs.core.layout import Device, Instance, Layer, Layout, Replica, Stage, iteration_time, make_plan
from jobs.core.layout.bounds import ClusterBound
from jobs.core.layout.cheapest import Cells, CheapestReplica
from jobs.core.layout.costs import uses_dead_device, violation
from jobs.core.layout.grouping import TooLarge
from jobs.core.layout.priced import PricedBound
from jobs.core.layout.supply import Supply
from jobs.core.layout.work import Work
from jobs.core.pipeline import one_f_one_b_makespan

EFFICIENCY = {1: 1.0, 2: 0.95, 4: 0.87, 8: 0.76}


@st.composite
def instances(draw):
    nodes = draw(st.integers(1, 2))
    speeds = draw(st.lists(st.sampled_from([1.0, 1.0, 0.6, 0.3]), min_size=2, max_size=5))
    devices = tuple(
        Device(f"g{i}", f"n{i % nodes}", speed, draw(st.sampled_from([2.0, 50.0])) if nodes == 1 else 50.0)
        for i, speed in enumerate(speeds)
    )
    layer = Layer(draw(st.sampled_from([0.5, 1.0])), draw(st.sampled_from([1.0, 2.0])), 1.0)
    return Instance(
        devices,
        (layer,) * draw(st.integers(1, 5)),
        None,
        draw(st.sampled_from([(1,), (1, 2), (2,), (1, 2, 4)])),
        EFFICIENCY,
        draw(st.sampled_from([1, 2, None])),
        draw(st.integers(2, 6)),
        draw(st.sampled_from([0.0, 0.0, 0.4])),
    )


def bound_of(instance):
    """The bound; an instance whose nodes are not looked at this way is no example."""
    try:
        return PricedBound(Work(instance), 1)
    except TooLarge:
        reject()


@settings(max_examples=80, deadline=None)
@given(instance=instances(), slack=st.sampled_from([1.0, 1.3]))
def test_bound_never_exceeds_the_optimum(instance, slack, optimum):
    best = optimum(instance)
    assume(best < math.inf)
    bound = bound_of(instance)
    assert bound.lower_bound(0.3 * best, best * slack) <= best * (1 + 1e-9)
    for bend in (0.0, 0.3, 1.0):
        assert not bound.excluded(best * (1 + 1e-9), bound.supply.natural(bend))


@settings(max_examples=60, deadline=None)
@given(instance=instances(), data=st.data())
def test_no_prices_exclude_the_optimum(instance, data, optimum):
    best = optimum(instance)
    assume(best < math.inf)
    bound = bound_of(instance)
    count = len(bound.supply.types)
    prices = data.draw(st.lists(st.floats(0.0, 4.0), min_size=count, max_size=count))
    assume(max(prices) > 0.1)
    assert not bound.excluded(best * (1 + 1e-9), bound.supply.consistent(np.array(prices)))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([1.0, 0.5, 0.3]), min_size=1, max_size=4),
    st.lists(st.integers(1, 3), min_size=4, max_size=4),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([(1.0, 2.0), (1.0, 1.0), (2.0, 0.5)]),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_a_real_replica_is_never_cheaper_than_the_cell_it_lies_in(rates, split, m, transfer_s, layer, weight):
    """Against pipelines simulated exactly: each costs at least what is claimed for its time."""
    split = split[: len(rates)]
    devices = tuple(Device(f"g{i}", f"n{i}", rate, 99.0) for i, rate in enumerate(rates))
    instance = Instance(devices, (Layer(*layer, 1.0),) * sum(split), None, (1,), {1: 1.0}, 1, m, transfer_s)
    supply = Supply(Work(instance))
    prices = supply.consistent(supply.rates**1.3)
    stages = [(layer[0] * n / rate, layer[1] * n / rate) for n, rate in zip(split, rates, strict=True)]
    time = one_f_one_b_makespan([f for f, _ in stages], [b for _, b in stages], m, transfer_s)
    through = sum(map(sum, stages)) + 2 * transfer_s * (len(stages) - 1)
    cells = Cells(*(np.array([value]) for value in (float(m), through, through, 1e6, weight)))
    claimed = float(CheapestReplica(supply, prices, time).prices(cells)[0])
    assert claimed <= sum(rate**1.3 for rate in rates) * (1 + 1e-9)


def test_supply_offers_the_best_cut_of_each_node():
    devices = tuple(Device(f"g{i}", "n0", speed, 99.0) for i, speed in enumerate([1.0, 1.0, 1.0, 0.5]))
    work = Work(Instance(devices, (Layer(1.0, 2.0, 1.0),) * 2, None, (1, 2, 4), EFFICIENCY, 1, 4))
    supply = Supply(work)
    assert supply.worth(supply.natural()) == pytest.approx(3.5, abs=0.03)
    # More groups than layers may lie on one node: they can belong to different replicas.
    single = np.array([1.0 if kind.rate in (1.0, 0.5) else 0.0 for kind in supply.types])
    assert supply.best_cut(0, single)[1].sum() == 4


def small_cluster():
    """32 devices, one slow and one dead; two replicas of two stages run today."""
    devices = tuple(Device(f"g{i}", f"n{i // 8}", {3: 0.5, 20: 0.0}.get(i, 1.0), 80.0) for i in range(32))
    current = Layout(
        tuple(
            Replica(8, tuple(Stage(tuple(f"g{i}" for i in range(s, s + 8)), 8) for s in (r, r + 8)))
            for r in (0, 16)
        )
    )
    layers = (Layer(1.0, 2.0, 10.0),) * 16
    return Instance(devices, layers, 64, (1, 2, 4, 8), EFFICIENCY, 2, 16, 0.0, current, 1e6)


def test_bound_holds_for_every_legal_alternative():
    instance = small_cluster()
    plan = make_plan(instance, lambda: 0.0)
    work = Work(instance)
    loose = ClusterBound(work, plan.time).lower_bound()
    tight = PricedBound(work, 2).lower_bound(loose, plan.time)
    assert loose <= tight <= plan.time
    for other in plan.alternatives:
        layout = other.layout
        if layout and not uses_dead_device(instance, layout) and violation(instance, layout) is None:
            assert tight <= iteration_time(instance, layout) * (1 + 1e-9)


def test_whole_layers_and_groups_leave_a_healthy_cluster_little_to_gain():
    """Four replicas of eight stages take 192.43; the bound by devices alone says 185.8."""
    devices = tuple(Device(f"g{i}", f"n{i // 8}", 1.0, 80.0) for i in range(256))
    layers = (Layer(1.0, 2.0, 14.0),) * 80
    work = Work(Instance(devices, layers, 64, (1, 2, 4, 8), EFFICIENCY, 4, 128))
    bound = PricedBound(work, 4)
    assert ClusterBound(work, 192.44).lower_bound() < 187
    assert bound.excluded(190.0, bound.supply.natural())
    assert not bound.excluded(192.44, bound.supply.natural())


def test_an_open_number_of_replicas_is_bounded_by_the_best_one():
    """14 replicas take 188.3 or less on this cluster; four cannot take less than 190."""
    devices = tuple(Device(f"g{i}", f"n{i // 8}", 1.0, 80.0) for i in range(256))
    work = Work(Instance(devices, (Layer(1.0, 2.0, 14.0),) * 80, 64, (1, 2, 4, 8), EFFICIENCY, None, 128))
    bound = PricedBound(work, 14)
    assert bound.excluded(150.0, bound.supply.natural())
    assert not bound.excluded(188.3, bound.supply.natural())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([1.0, 1.0, 0.6, 0.3, 0.1]), min_size=4, max_size=16), st.floats(0.0, 1.0))
def test_raised_prices_leave_what_is_offered_as_it_is(speeds, bend):
    devices = tuple(Device(f"g{i}", f"n{i // 8}", speed, 80.0) for i, speed in enumerate(speeds))
    layers = (Layer(1.0, 2.0, 1.0),) * 4
    supply = Supply(Work(Instance(devices, layers, None, (1, 2, 4, 8), EFFICIENCY, 1, 4)))
    sizes = supply.consistent(supply.rates ** (1 + bend))
    raised = supply.lifted(sizes)
    assert (raised >= sizes * (1 - 1e-9)).all()
    assert supply.worth(raised) == pytest.approx(supply.worth(sizes))
