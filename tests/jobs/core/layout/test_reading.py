"""Every malformed field is refused by name and rule, whatever comes in."""

import copy
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.errors import MalformedInstance
from jobs.core.layout import Layer, Layout, Replica, Stage, read_instance
from jobs.core.layout.reading import check_layout, read_plan

GOOD = {
    "devices": [
        {"id": "g0", "node": "n0", "speed": 1.0, "memory": 3.0},
        {"id": "g1", "node": "n0", "speed": 0.5, "memory": 3.0},
    ],
    "layers": {"count": 4, "forward": 1.0, "backward": 2.0, "memory": 1.0},
    "heads": 8,
    "tensor_parallel": {"sizes": [1, 2], "efficiency": {"1": 1.0, "2": 0.95}},
    "replicas": 1,
    "microbatches": 8,
    "transfer_s": 0.0,
    "current": {"replicas": [{"microbatches": 8, "stages": [{"devices": ["g0", "g1"], "layers": 4}]}]},
    "time_limit_s": 10,
}
MISSING = object()


def changed(path, value):
    data = copy.deepcopy(GOOD)
    *parents, last = path
    target = data
    for key in parents:
        target = target[key]
    if value is MISSING:
        del target[last]
    else:
        target[last] = value
    return data


def test_a_good_instance_is_read_to_the_letter():
    instance = read_instance(GOOD)
    assert [(d.id, d.node, d.speed, d.memory) for d in instance.devices] == [
        ("g0", "n0", 1.0, 3.0),
        ("g1", "n0", 0.5, 3.0),
    ]
    assert instance.layers == (Layer(1.0, 2.0, 1.0),) * 4
    assert (instance.heads, instance.sizes, instance.efficiency) == (8, (1, 2), {1: 1.0, 2: 0.95})
    assert (instance.replicas, instance.microbatches, instance.transfer_s, instance.time_limit_s) == (
        1,
        8,
        0.0,
        10.0,
    )
    assert instance.current == Layout((Replica(8, (Stage(("g0", "g1"), 4),)),))


@pytest.mark.parametrize("key", ["heads", "current", "transfer_s", "time_limit_s"])
@pytest.mark.parametrize("value", [MISSING, None])
def test_optional_fields_may_be_absent(key, value):
    instance = read_instance(changed([key], value))
    assert (
        getattr(instance, key)
        == {"heads": None, "current": None, "transfer_s": 0.0, "time_limit_s": 10.0}[key]
    )


def test_whole_numbers_unknown_keys_and_a_list_of_layers_are_fine():
    data = changed(["layers"], [{"forward": 1, "backward": 2, "memory": 1, "name": "embedding"}] * 4)
    data["devices"][0] |= {"speed": 1, "memory": 3, "vendor": "any"}
    data |= {"comment": "hello", "replicas": None, "microbatches": 8.0}
    instance = read_instance(data)
    assert instance.layers == (Layer(1.0, 2.0, 1.0),) * 4
    assert instance.replicas is None
    assert instance.microbatches == 8


BAD = [
    (["devices"], MISSING, "devices: is missing"),
    (["devices"], {}, "devices: must be a list, got an object"),
    (["devices", 0], 3, r"devices\[0\]: must be an object, got 3"),
    (["devices", 0, "id"], MISSING, r"devices\[0\].id: is missing"),
    (["devices", 0, "id"], 5, r"devices\[0\].id: must be a non-empty string, got 5"),
    (["devices", 0, "id"], "g1", r"devices\[1\].id: 'g1' is given twice"),
    (["devices", 0, "node"], "", r"devices\[0\].node: must be a non-empty string"),
    (["devices", 0, "speed"], -1, r"devices\[0\].speed: must not be negative, got -1"),
    (["devices", 0, "speed"], "fast", r"devices\[0\].speed: must be a number, got the string 'fast'"),
    (["devices", 0, "speed"], True, r"devices\[0\].speed: must be a number, got true"),
    (["devices", 0, "speed"], float("nan"), r"devices\[0\].speed: must be a finite number"),
    (["devices", 0, "speed"], 10**400, r"devices\[0\].speed: must be a finite number"),
    (["devices", 0, "speed"], 1e-300, r"devices\[0\].speed: must lie between 1e-12 and 1e\+12, or be 0"),
    (["devices", 0, "memory"], None, r"devices\[0\].memory: must be a number, got null"),
    (["devices", 0, "memory"], float("inf"), r"devices\[0\].memory: must be a finite number"),
    (["layers"], [], "layers: at least one layer is needed"),
    (["layers"], 4, "layers: must be a list, got 4"),
    (["layers", "count"], 0, "layers.count: must be at least 1, got 0"),
    (["layers", "count"], 2.5, "layers.count: must be a whole number, got 2.5"),
    (["layers", "count"], 10**9, "layers.count: at most 10,000 are supported"),
    (["layers", "forward"], MISSING, "layers.forward: is missing"),
    (["layers", "backward"], -2, "layers.backward: must not be negative"),
    (["layers"], [{"forward": 1, "backward": 2}], r"layers\[0\].memory: is missing"),
    (["heads"], 0, "heads: must be at least 1"),
    (["heads"], "8", "heads: must be a whole number, got the string '8'"),
    (["tensor_parallel"], MISSING, "tensor_parallel: is missing"),
    (["tensor_parallel", "sizes"], [], "tensor_parallel.sizes: at least one size is needed"),
    (["tensor_parallel", "sizes"], [1, 0], r"tensor_parallel.sizes\[1\]: must be at least 1"),
    (["tensor_parallel", "sizes"], [1, 2, 4], "tensor_parallel.efficiency: no value for size 4"),
    (["tensor_parallel", "efficiency", "2"], 0, "tensor_parallel.efficiency.2: must be above 0"),
    (["tensor_parallel", "efficiency"], [1], "tensor_parallel.efficiency: must be an object, got a list"),
    (["replicas"], MISSING, "replicas: is missing"),
    (["replicas"], 0, "replicas: must be at least 1"),
    (["microbatches"], 0, "microbatches: must be at least 1"),
    (["microbatches"], None, "microbatches: must be a whole number, got null"),
    (["microbatches"], 10**7, "microbatches: at most 1,000,000"),
    (["transfer_s"], -0.5, "transfer_s: must not be negative"),
    (["time_limit_s"], [], "time_limit_s: must be a number, got a list"),
    (["current"], [], "current: must be an object, got a list"),
    (["current", "replicas"], [], "current.replicas: at least one replica is needed"),
    (
        ["current", "replicas", 0, "stages", 0, "devices"],
        ["g0", "g7"],
        r"current.replicas\[0\].stages\[0\].devices\[1\]: 'g7' is not a device of the instance",
    ),
    (
        ["current", "replicas", 0, "stages", 0, "devices"],
        ["g0", "g0"],
        r"current.replicas\[0\].stages\[0\].devices\[1\]: 'g0' already works in",
    ),
    (["current", "replicas", 0, "stages", 0, "devices"], [], "at least one device is needed"),
    (["current", "replicas", 0, "stages", 0, "devices"], [["g0"]], "is not a device of the instance"),
    (["current", "replicas", 0, "stages", 0, "layers"], 3, "its stages own 3 layers, the model has 4"),
    (["current", "replicas", 0, "stages", 0, "layers"], 0, "layers: must be at least 1"),
    (["current", "replicas", 0, "stages"], [], "its stages own 0 layers, the model has 4"),
    (["current", "replicas", 0, "microbatches"], 0, "microbatches: must be at least 1"),
]


@pytest.mark.parametrize(("path", "value", "words"), BAD)
def test_a_malformed_field_is_named_with_its_rule(path, value, words):
    with pytest.raises(MalformedInstance, match=words):
        read_instance(changed(path, value))


garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def paths(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


@given(st.sampled_from([list(path) for path in paths(GOOD) if path]), garbage)
def test_garbage_anywhere_is_read_or_refused_but_never_crashes(path, value):
    with suppress(MalformedInstance):
        assert read_instance(changed(path, value)).microbatches >= 1


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["tensor_parallel", "sizes"], [1], "a group of 2, but tensor_parallel.sizes are 1"),
        (["devices", 1, "node"], "n1", "a group must lie on one node, this one spans n0, n1"),
        (["microbatches"], 9, "its replicas run 8 micro-batches, the instance has 9"),
    ],
)
def test_a_layout_that_cannot_run_is_refused(path, value, words):
    instance = read_instance(changed(path, value))
    with pytest.raises(MalformedInstance, match=words):
        check_layout(instance, instance.current, "current")


def test_a_plan_is_read_from_the_whole_answer_or_alone():
    instance = read_instance(GOOD)
    plan = json.loads(json.dumps(GOOD["current"]))
    assert read_plan({"iteration_time": 1, "plan": plan}, instance) == instance.current
    assert read_plan(plan, instance) == instance.current
