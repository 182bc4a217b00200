"""Every second of every device is accounted for once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.layout import Device, Instance, Layer, Layout, Replica, Stage, iteration_time
from jobs.core.layout.losses import TERMS, losses


@given(st.lists(st.sampled_from([1.0, 0.5, 0.2]), min_size=6, max_size=6), st.integers(1, 6))
def test_shares_make_up_the_whole_and_the_useful_one_is_the_work(speeds, microbatches):
    devices = tuple(Device(f"g{i}", "n0", speed, 9.0) for i, speed in enumerate(speeds))
    instance = Instance(
        devices, (Layer(1.0, 2.0, 1.0),) * 3, None, (1, 2), {1: 1.0, 2: 0.9}, 2, microbatches + 1
    )
    layout = Layout(
        (
            Replica(microbatches, (Stage(("g0", "g1"), 2), Stage(("g2",), 1))),
            Replica(1, (Stage(("g3", "g4"), 3),)),
        )
    )
    found = losses(instance, layout)
    assert tuple(found) == TERMS
    assert sum(found.values()) == pytest.approx(1)
    assert min(found.values()) >= -1e-9
    work = 9.0 * (microbatches + 1)
    assert found["useful"] * iteration_time(instance, layout) * sum(speeds) == pytest.approx(work)


def test_a_device_on_its_own_only_works():
    instance = Instance((Device("g0", "n0", 1.0, 9.0),), (Layer(1.0, 2.0, 1.0),), None, (1,), {1: 1.0}, 1, 4)
    assert losses(instance, Layout((Replica(4, (Stage(("g0",), 1),)),)))["useful"] == pytest.approx(1)
