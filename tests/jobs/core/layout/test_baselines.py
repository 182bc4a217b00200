"""What other systems would do: the published columns, dead devices, rerouting."""

from dataclasses import replace

import pytest

from jobs.core.layout import Device, Instance, Layer, Layout, Replica, Stage, baselines, iteration_time
from jobs.core.layout.baselines import exclude_members
from jobs.core.layout.fixed import FixedOrder
from jobs.core.layout.rerouting import rerouted_time
from jobs.core.layout.splits import SplitSearch
from jobs.core.layout.work import Work


def running(speeds, microbatches=8):
    """DP2 x PP2 x TP2 on eight devices."""
    devices = tuple(Device(f"g{i}", "n0", speeds.get(i, 1.0), 3.0) for i in range(8))
    replicas = tuple(
        Replica(microbatches, (Stage((f"g{r}", f"g{r + 1}"), 4), Stage((f"g{r + 2}", f"g{r + 3}"), 4)))
        for r in (0, 4)
    )
    return Instance(
        devices,
        (Layer(1.0, 2.0, 1.0),) * 8,
        None,
        (1, 2),
        {1: 1.0, 2: 0.95},
        2,
        2 * microbatches,
        0.0,
        Layout(replicas),
    )


def fixed(instance):
    work = Work(instance)
    return FixedOrder(work, SplitSearch(work), lambda: True)


@pytest.mark.parametrize("speed", [0.9, 0.75, 0.5, 0.25, 0.0])
def test_excluding_the_slow_member_costs_what_is_published(speed):
    instance = running({0: speed})
    staged = exclude_members(instance, instance.current, always=True)
    assert staged[0].stages[0].devices == ("g1",)
    assert iteration_time(instance, fixed(instance).repartitioned(staged)) == pytest.approx(69.474, abs=5e-4)


def test_plain_exclusion_without_rebalancing_is_worse_than_a_mild_slowdown():
    instance = running({0: 0.75})
    staged = exclude_members(instance, instance.current, always=True)
    assert iteration_time(instance, Layout(tuple(staged))) == pytest.approx(98.316, abs=5e-4)


@pytest.mark.parametrize(("speed", "kept"), [(0.9, ("g0", "g1")), (0.4, ("g1",)), (0.0, ("g1",))])
def test_the_subgroup_with_the_most_speed_is_kept(speed, kept):
    instance = running({0: speed})
    assert exclude_members(instance, instance.current)[0].stages[0].devices == kept


def test_a_stage_whose_devices_all_died_disappears_and_its_layers_go_to_the_others():
    instance = running({0: 0.0, 1: 0.0})
    roomy = tuple(replace(device, memory=9.0) for device in instance.devices)
    instance = replace(instance, devices=roomy)
    staged = exclude_members(instance, instance.current)
    layout = fixed(instance).repartitioned(staged)
    assert layout.replicas[0].stages == (Stage(("g2", "g3"), 8),)


def test_with_a_dead_device_only_what_works_around_it_has_a_time():
    times = {other.name: other.time for other in baselines(running({0: 0.0}), fixed(running({0: 0.0})))}
    assert {name for name, time in times.items() if time is None} == {
        "no_action",
        "rebalance",
        "repartition",
        "repartition_rebalance",
    }
    # One replica does all the work.
    assert times["drop_replicas"] == pytest.approx(17 * 2 * 6 / 1.9 * 0.5 * 2, rel=1e-9)


def test_rerouting_a_healthy_layout_is_plain_1f1b():
    instance = running({})
    time, obstacle = rerouted_time(instance, instance.current)
    assert obstacle == ""
    assert time == pytest.approx(iteration_time(instance, instance.current))


def test_rerouting_doubles_the_work_of_the_only_peer():
    instance = running({0: 0.0})
    time, _ = rerouted_time(instance, instance.current)
    work = 12 / 1.9
    assert 16 * work <= time <= 17 * work * (1 + 1e-9)


@pytest.mark.parametrize(("speeds", "words"), [({0: 0.0, 4: 0.0}, "no replica has a living stage 0")])
def test_a_stage_that_died_everywhere_cannot_be_rerouted(speeds, words):
    instance = running(speeds)
    assert rerouted_time(instance, instance.current) == (None, words)
