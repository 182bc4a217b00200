"""The lower bound for large clusters never exceeds the optimum, and is close where it can be."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.layout import Device, Instance, Layer, make_plan
from jobs.core.layout.bounds import ClusterBound
from jobs.core.layout.work import Work

EFFICIENCY = {1: 1.0, 2: 0.95, 4: 0.87, 8: 0.76}


@settings(max_examples=100, deadline=None)
@given(
    speeds=st.lists(st.sampled_from([1.0, 1.0, 0.5, 0.3]), min_size=1, max_size=5),
    layers=st.lists(
        st.builds(Layer, st.sampled_from([0.5, 1.0]), st.sampled_from([1.0, 2.0]), st.just(1.0)),
        min_size=1,
        max_size=5,
    ),
    sizes=st.sampled_from([(1,), (1, 2), (2,)]),
    replicas=st.sampled_from([1, 2, None]),
    microbatches=st.integers(2, 6),
    slack=st.sampled_from([1.0, 1.4]),
)
def test_bound_never_exceeds_the_optimum(speeds, layers, sizes, replicas, microbatches, slack, optimum):
    devices = tuple(Device(f"g{i}", "n0", speed, 50.0) for i, speed in enumerate(speeds))
    instance = Instance(devices, tuple(layers), None, sizes, EFFICIENCY, replicas, microbatches)
    best = optimum(instance)
    if best < math.inf:
        assert ClusterBound(Work(instance), best * slack).lower_bound() <= best * (1 + 1e-9)


def test_bound_is_within_a_tenth_on_a_healthy_cluster():
    devices = tuple(Device(f"g{i}", f"n{i // 8}", 1.0, 80.0) for i in range(256))
    instance = Instance(
        devices, (Layer(1.0, 2.0, 14.0),) * 80, 64, (1, 2, 4, 8), EFFICIENCY, 4, 128, time_limit_s=1e6
    )
    plan = make_plan(instance, lambda: 0.0)
    assert plan.time <= 47 * 15 / (4 * 0.87) * (1 + 1e-9)
    assert 0 < plan.gap < 0.1


def test_a_single_device_is_proven_optimal_by_the_bound_alone():
    instance = Instance(
        (Device("g0", "n0", 1.0, 50.0),), (Layer(1.0, 2.0, 1.0),) * 3, None, (1,), {1: 1.0}, 1, 7
    )
    assert ClusterBound(Work(instance), 63.0).lower_bound() == pytest.approx(63.0, rel=1e-8)
