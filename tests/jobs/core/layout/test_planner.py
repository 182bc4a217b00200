"""The planner against exhaustive search, the golden table and the rules of its answer."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.core.errors import MalformedInstance, NoFeasiblePlan
from jobs.core.layout import (
    Action,
    Device,
    Instance,
    Layer,
    Layout,
    Replica,
    Stage,
    iteration_time,
    make_plan,
)
from jobs.core.layout.costs import violation

EFFICIENCY = {1: 1.0, 2: 0.95, 3: 0.9, 4: 0.85}
exact = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def still():
    """A clock that stands still: nothing is cut by the time limit."""
    return 0.0


def test_a_search_without_room_ends_also_when_nothing_is_proven():
    ticks = itertools.count(step=6)
    tight = tuple(Device(f"g{i}", "n0", 1.0 + i / 10, 3.0 + i / 10) for i in range(7))
    layers = tuple(Layer(1.0, 2.0, 1.0 + i / 100) for i in range(40))
    instance = Instance(tight, layers, None, (1, 2, 3), EFFICIENCY, 1, 4)
    with pytest.raises(NoFeasiblePlan) as error:
        make_plan(instance, lambda: next(ticks))
    assert error.value.cause == "memory"


def fast_clock():
    """A clock on which the time limit has passed after the first look."""
    ticks = itertools.count()
    return lambda: 1e6 * next(ticks)


@st.composite
def instances(draw, with_current=False):
    count = draw(st.integers(1, 5))
    nodes = draw(st.integers(1, 2))
    memories = draw(st.sampled_from([[50.0], [3.0], [2.0, 3.0], [1.0, 2.0, 4.0]]))
    speeds = st.sampled_from([1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 1.3, 0.0])
    devices = tuple(
        Device(f"g{i}", f"n{draw(st.integers(0, nodes - 1))}", draw(speeds), draw(st.sampled_from(memories)))
        for i in range(count)
    )
    if draw(st.booleans()):
        layers = (Layer(1.0, 2.0, 1.0),) * draw(st.integers(1, 6))
    else:
        times = st.sampled_from([0.5, 1.0, 1.5, 0.0])
        layers = tuple(
            Layer(draw(times), draw(times) + 0.5, draw(st.sampled_from([0.1, 0.5, 1.0])))
            for _ in range(draw(st.integers(1, 4)))
        )
    replicas = draw(st.sampled_from([1, 1, 2, None, 3]))
    instance = Instance(
        devices=devices,
        layers=layers,
        heads=draw(st.sampled_from([None, None, 8, 6])),
        sizes=draw(st.sampled_from([(1,), (1, 2), (1, 2, 4), (2,), (2, 3), (1, 3)])),
        efficiency=EFFICIENCY,
        replicas=replicas,
        microbatches=draw(st.integers(1, 6)),
        transfer_s=draw(st.sampled_from([0.0, 0.0, 0.3, 2.0])),
    )
    return replace(instance, current=draw(layouts(instance))) if with_current else instance


@st.composite
def layouts(draw, instance):
    """Some layout of the instance's devices, dead ones too; it may break the memory."""
    replicas = instance.replicas or draw(st.integers(1, 2))
    groups = []
    for node in sorted({device.node for device in instance.devices}):
        names = [device.id for device in instance.devices if device.node == node]
        while names:
            size = draw(st.sampled_from([k for k in instance.sizes if k <= len(names)] or [0]))
            if size:
                groups.append(tuple(names[:size]))
            names = names[size:] if size else []
    if len(groups) < replicas or instance.microbatches < replicas:
        return None
    shares = [groups[r::replicas][: len(instance.layers)] for r in range(replicas)]
    counts = [
        instance.microbatches // replicas + (r < instance.microbatches % replicas) for r in range(replicas)
    ]
    rows = []
    for share, count in zip(shares, counts, strict=True):
        cuts = draw(st.permutations(range(1, len(instance.layers))))[: len(share) - 1]
        edges = [0, *sorted(cuts), len(instance.layers)]
        rows.append(
            Replica(count, tuple(Stage(g, b - a) for g, a, b in zip(share, edges, edges[1:], strict=False)))
        )
    return Layout(tuple(rows))


def assert_legal(instance, layout):
    names = [name for replica in layout.replicas for stage in replica.stages for name in stage.devices]
    assert len(names) == len(set(names))
    assert violation(instance, layout) is None
    assert sum(replica.microbatches for replica in layout.replicas) == instance.microbatches
    for replica in layout.replicas:
        assert replica.microbatches >= 1
        assert sum(stage.layers for stage in replica.stages) == len(instance.layers)
        for stage in replica.stages:
            members = [instance.device(name) for name in stage.devices]
            assert stage.layers >= 1
            assert len({member.node for member in members}) == 1
            assert min(member.speed for member in members) > 0


def plan_or_cause(instance, clock=still):
    try:
        return make_plan(instance, clock)
    except NoFeasiblePlan as error:
        return error.cause


@exact
@given(instance=instances())
def test_plan_is_as_fast_as_the_best_of_all_layouts(instance, optimum):
    plan = plan_or_cause(instance)
    best = optimum(instance)
    if isinstance(plan, str):
        assert best == math.inf
    else:
        assert plan.optimal
        assert plan.gap == 0.0
        assert plan.time == plan.lower_bound == pytest.approx(best, rel=1e-9)
        assert plan.time == pytest.approx(iteration_time(instance, plan.layout), rel=1e-12)
        assert_legal(instance, plan.layout)


@exact
@given(instance=instances(with_current=True))
def test_current_layout_is_kept_unless_something_is_really_faster(instance, optimum):
    plan = plan_or_cause(instance)
    if isinstance(plan, str):
        assert optimum(instance) == math.inf
        return
    best, current = optimum(instance), instance.current
    if current is None:
        assert (plan.action, plan.current_time) == (None, None)
    elif any(instance.device(name).speed == 0 for name in current.devices()):
        assert plan.current_time is None
        assert plan.action in (Action.REGROUP, Action.EXCLUDE)
    else:
        assert plan.current_time == pytest.approx(iteration_time(instance, current), rel=1e-12)
        legal = violation(instance, current) is None
        kept = legal and plan.current_time <= best * (1 + 1e-9)
        assert (plan.action is Action.KEEP) == kept
        if kept:
            assert plan.layout == current
    assert plan.time == pytest.approx(best, rel=1e-9)
    assert_legal(instance, plan.layout)


@settings(max_examples=60, deadline=None)
@given(instance=instances(with_current=True))
def test_without_time_the_plan_is_legal_and_its_bound_holds(instance, optimum):
    instance = replace(instance, time_limit_s=0.0)
    plan = plan_or_cause(instance, fast_clock())
    if isinstance(plan, str):
        return
    best = optimum(instance)
    assert_legal(instance, plan.layout)
    assert plan.lower_bound <= best * (1 + 1e-9)
    assert plan.time >= best * (1 - 1e-9)
    if plan.optimal:
        assert plan.time == pytest.approx(best, rel=1e-9)
        assert plan.gap == 0.0
    else:
        assert plan.gap == plan.time / plan.lower_bound - 1


@settings(max_examples=40, deadline=None)
@given(instance=instances(), data=st.data())
def test_a_faster_device_never_makes_the_optimum_slower(instance, data):
    plan = plan_or_cause(instance)
    index = data.draw(st.integers(0, len(instance.devices) - 1))
    devices = list(instance.devices)
    devices[index] = replace(devices[index], speed=devices[index].speed + 0.5)
    better = plan_or_cause(replace(instance, devices=tuple(devices)))
    if not isinstance(plan, str):
        assert better.time <= plan.time * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(instance=instances(), data=st.data())
def test_names_and_order_of_devices_do_not_matter(instance, data):
    plan = plan_or_cause(instance)
    order = data.draw(st.permutations(range(len(instance.devices))))
    renamed = tuple(
        replace(instance.devices[i], id=f"x{i}", node="m" + instance.devices[i].node) for i in order
    )
    other = plan_or_cause(replace(instance, devices=renamed))
    if isinstance(plan, str):
        assert other == plan
    else:
        assert other.time == pytest.approx(plan.time, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(instance=instances(with_current=True))
def test_the_same_instance_always_gets_the_same_plan(instance):
    first, second = plan_or_cause(instance), plan_or_cause(instance)
    if isinstance(first, str):
        assert second == first
    else:
        assert second.layout == first.layout


def golden(speed):
    """Eight devices, the first of the given speed; DP2 x PP2 x TP2 runs today."""
    devices = tuple(Device(f"g{i}", "n0", speed if i == 0 else 1.0, 3.0) for i in range(8))
    replicas = tuple(
        Replica(8, (Stage((f"g{4 * r}", f"g{4 * r + 1}"), 4), Stage((f"g{4 * r + 2}", f"g{4 * r + 3}"), 4)))
        for r in range(2)
    )
    return Instance(
        devices=devices,
        layers=(Layer(1.0, 2.0, 1.0),) * 8,
        heads=None,
        sizes=(1, 2),
        efficiency=EFFICIENCY,
        replicas=2,
        microbatches=16,
        current=Layout(replicas),
    )


GOLDEN = [  # speed, no action, DP only, PP only, PP + DP, optimum, action
    (1.0, 56.8421, 56.8421, 56.8421, 56.8421, 56.8421, Action.KEEP),
    (0.9, 61.754, 61.754, 61.754, 61.754, 61.754, Action.KEEP),
    (0.75, 71.579, 63.158, 69.474, 63.158, 63.158, Action.REBALANCE),
    (0.5, 103.158, 75.789, 82.105, 69.474, 63.474, Action.REGROUP),
    (0.25, 202.105, 88.421, 107.368, 75.789, 69.158, Action.EXCLUDE),
    (0.0, None, None, None, None, 69.158, Action.REGROUP),
]


@pytest.mark.parametrize(("speed", "no_action", "micro", "layers", "both", "best", "action"), GOLDEN)
def test_golden_instance_gets_the_published_optimum(speed, no_action, micro, layers, both, best, action):
    plan = make_plan(golden(speed), still)
    times = {other.name: other.time for other in plan.alternatives}
    expected = {
        "no_action": no_action,
        "rebalance": micro,
        "repartition": layers,
        "repartition_rebalance": both,
    }
    assert {name: times[name] and round(times[name], 3) for name in expected} == {
        name: time and round(time, 3) for name, time in expected.items()
    }
    assert round(plan.time, 3) == round(best, 3)
    assert plan.optimal
    assert plan.action is action


def test_golden_half_speed_device_is_worth_keeping():
    plan = make_plan(golden(0.5), still)
    shapes = [
        (replica.microbatches, [(len(stage.devices), stage.layers) for stage in replica.stages])
        for replica in plan.layout.replicas
    ]
    assert shapes == [(7, [(2, 5), (1, 2), (1, 1)]), (9, [(2, 4), (2, 4)])]
    assert "g0" in plan.layout.devices()


def test_example_of_the_documentation_is_solved():
    instance = Instance(
        devices=(Device("g0", "n0", 1.0, 3.0), Device("g1", "n0", 0.5, 3.0)),
        layers=(Layer(1.0, 2.0, 1.0),) * 4,
        heads=8,
        sizes=(1, 2),
        efficiency=EFFICIENCY,
        replicas=1,
        microbatches=8,
        current=Layout((Replica(8, (Stage(("g0", "g1"), 4),)),)),
    )
    plan = make_plan(instance, still)
    assert (plan.time, plan.current_time, plan.action) == (
        75.0,
        pytest.approx(101.05263157894737),
        Action.REGROUP,
    )
    assert plan.layout == Layout((Replica(8, (Stage(("g0",), 3), Stage(("g1",), 1))),))


@pytest.mark.parametrize(
    ("change", "cause", "words"),
    [
        ({"microbatches": 1}, "microbatches", "too few: 2 replicas run at least one each"),
        ({"replicas": 9}, "devices", "8 living devices are too few for 9"),
        (
            {"heads": 7, "sizes": (2,)},
            "heads",
            r"no allowed size \(2\) divides the 7 heads; powers of two that do: 1",
        ),
        ({"heads": 52, "sizes": (8,)}, "heads", "powers of two that do: 1, 2, 4"),
        ({"sizes": (16,)}, "sizes", r"no node can form a group of an allowed size \(16\)"),
        ({"layers": (Layer(1.0, 2.0, 4.0),) * 8}, "memory", "no layout fits the memory"),
        ({"sizes": (8,)}, "memory", "at most 1 groups"),
        ({"devices": ()}, "devices", "0 living devices"),
    ],
)
def test_impossible_instances_name_the_first_cause(change, cause, words):
    changed = {"efficiency": {**EFFICIENCY, 8: 0.7, 16: 0.6}, "current": None, **change}
    with pytest.raises(NoFeasiblePlan, match=words) as error:
        make_plan(replace(golden(1.0), **changed), still)
    assert error.value.cause == cause


def test_a_current_that_runs_other_micro_batches_is_refused():
    with pytest.raises(
        MalformedInstance, match="current: its replicas run 16 micro-batches, the instance has 17"
    ):
        make_plan(replace(golden(1.0), microbatches=17), still)


def test_a_current_that_does_not_fit_its_memory_is_timed_but_not_kept():
    instance = golden(1.0)
    tight = tuple(replace(device, memory=1.5 if device.id == "g0" else 3.0) for device in instance.devices)
    plan = make_plan(replace(instance, devices=tight), still)
    assert plan.current_time == pytest.approx(56.8421, abs=1e-4)
    assert plan.action is not Action.KEEP
    assert plan.warnings == (
        "current cannot be kept: replica 0, stage 0 needs 2 memory per device, its smallest has 1.5",
    )


def test_memory_that_is_met_exactly_is_enough_also_after_rounding():
    devices = (Device("g0", "n0", 1.0, 0.3), Device("g1", "n0", 1.0, 0.3))
    layers = tuple(Layer(1.0, 2.0, 0.1) for _ in range(6))
    instance = Instance(devices, layers, None, (1,), {1: 1.0}, 1, 4)
    assert make_plan(instance, still).layout.replicas[0].stages == (Stage(("g0",), 3), Stage(("g1",), 3))


def test_seven_of_eight_devices_still_make_groups_of_four_two_and_one():
    devices = tuple(
        Device(f"n{n}g{i}", f"n{n}", 0.0 if (n, i) == (1, 3) else 1.0, 10.0)
        for n in range(2)
        for i in range(8)
    )
    instance = Instance(
        devices, (Layer(1.0, 2.0, 1.0),) * 8, 64, (1, 2, 4), {1: 0.1, 2: 0.5, 4: 1.0}, None, 4, time_limit_s=5
    )
    plan = make_plan(instance, still)
    sizes = [len(stage.devices) for replica in plan.layout.replicas for stage in replica.stages]
    assert set(sizes) <= {1, 2, 4}
    assert "n1g3" not in plan.layout.devices()
