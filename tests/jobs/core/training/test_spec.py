import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.errors import InvalidSpec
from jobs.core.training import ClusterFacts, check_spec, spec_schema
from jobs.core.training.fields import SCHEDULES
from jobs.core.training.layout import on_ranks
from jobs.core.training.spec import KINDS

CORES = ClusterFacts(devices=2, shared=True, memory_bytes=8 << 30, largest_node=2)
GPUS = ClusterFacts(devices=4, shared=False, memory_bytes=8 << 30, largest_node=2)


def checked(cluster=CORES, **spec):
    return check_spec({"workload": "pydoc-gpt", **spec}, cluster)


def faults(cluster=CORES, **spec):
    with pytest.raises(InvalidSpec) as caught:
        checked(cluster, **spec)
    return dict(caught.value.faults)


def outcome(spec):
    """Return the checked spec, or the pointers of its faults."""
    try:
        return check_spec({"workload": "pydoc-gpt", **spec}, CORES), set()
    except InvalidSpec as error:
        return None, {pointer for pointer, _ in error.faults}


def stages(*layers, tensor_parallel=1, **more):
    return {"stages": [{"layers": n, "tensor_parallel": tensor_parallel} for n in layers], **more}


def test_the_workload_alone_is_enough_and_every_default_is_stated():
    spec = checked()
    assert spec["layout"] == {"replicas": [stages(4, microbatches=2)] * 2}
    assert (spec["schedule"], spec["microbatches"], spec["steps"], spec["devices"]) == ("1f1b", 4, 200, 2)
    assert (spec["checkpoint_every"], spec["lend_bubbles"], spec["parameters"]["layers"]) == (100, True, 4)
    recovery = {"approve": ["repartition", "regroup", "exclude"], "auto": ["rebalance"]}
    assert spec["recovery"] == recovery | {"fail_stop": "proceed", "expire_s": 3600}


def test_a_checked_spec_is_checked_to_itself():
    spec = checked(layout={"replicas": [stages(2, 2)]}, microbatches=6, schedule="zb-h1")
    assert check_spec(spec, CORES) == spec


def test_the_layers_of_the_model_are_those_of_the_layout_unless_both_are_given():
    assert checked(layout={"replicas": [stages(3, 4)]})["parameters"]["layers"] == 7


@pytest.mark.parametrize(
    ("spec", "pointer", "words"),
    [
        ({"parameters": {"layers": 30}, "layout": {"replicas": [stages(7, 7, 7, 7)]}},
         "/spec/layout/replicas/0", "own 28 layers, the model has 30"),
        ({"parameters": {"layers": 2}, "layout": {"replicas": [stages(1, 1, 1)]}},
         "/spec/layout/replicas/0", "3 stages, the model has only 2 layers"),
        ({"layout": {"replicas": [stages(2, 2), stages(2, 3)]}},
         "/spec/layout/replicas/1", "own 5 layers, the model has 4"),
        ({"parameters": {"heads": 52, "width": 416}, "layout": {"replicas": [stages(4, tensor_parallel=8)]}},
         "/spec/layout/replicas/0/stages/0/tensor_parallel", "legal are 1, 2, 4, 13, 26, 52"),
        ({"parameters": {"heads": 5}}, "/spec/parameters/heads", "legal are 1, 2, 4, 8, 16, 32"),
        ({"microbatches": 1, "layout": {"replicas": [stages(4)] * 2}}, "/spec/microbatches", "too few"),
        ({"microbatches": 9, "layout": {"replicas": [stages(4, microbatches=4)] * 2}},
         "/spec/microbatches", "run 8 together"),
        ({"schedule": "interleaved", "microbatches": 7, "layout": {"replicas": [stages(2, 2)]}},
         "/spec/microbatches", "multiple of the 2 stages"),
        ({"schedule": "zb-v", "layout": {"replicas": [stages(1, 3)]}},
         "/spec/layout/replicas/0/stages/0/layers", "2 layers or more"),
        ({"parameters": {"width": 8192, "heads": 64, "layers": 40}, "layout": {"replicas": [stages(40)]}},
         "/spec/layout/replicas/0/stages/0", "more stages, more tensor parallelism or a smaller model"),
        ({"devices": 3, "layout": {"replicas": [stages(2, 2)]}}, "/spec/devices", "the layout has 2 ranks"),
        ({"steps": 0}, "/spec/steps", "at least 1"),
        ({"steps": True}, "/spec/steps", "whole number"),
        ({"lr": float("nan")}, "/spec/lr", "number"),
        ({"recovery": {"auto": ["explode"]}}, "/spec/recovery/auto/0", "rebalance"),
        ({"recovery": {"auto": ["regroup"], "approve": ["regroup"]}}, "/spec/recovery/auto", "as well"),
        ({"recovery": []}, "/spec/recovery", "object"),
        ({"layout": {"replicas": []}}, "/spec/layout/replicas", "at least one"),
        ({"layout": {"replicas": [{"stages": [{"layers": 1.5}]}]}},
         "/spec/layout/replicas/0/stages/0/layers", "whole number"),
        ({"parameters": {"context": 512}}, "/spec/parameters/microbatch_tokens", "at least the context"),
    ],
)  # fmt: skip
def test_a_fault_is_named_by_its_pointer_and_with_the_legal_choices(spec, pointer, words):
    assert words in faults(**spec)[pointer]


def test_gpus_hold_one_rank_each_and_a_group_stays_on_its_node():
    six = {"replicas": [stages(2, 2)] * 3}
    assert "asks for 6 devices, this cluster has 4" in faults(GPUS, layout=six)["/spec/layout"]
    wide = {"replicas": [stages(4, tensor_parallel=4)]}
    assert (
        "the largest has 2" in faults(GPUS, layout=wide)["/spec/layout/replicas/0/stages/0/tensor_parallel"]
    )
    assert checked(CORES, layout=six)["devices"] == 6
    assert "this cluster has 4" in faults(GPUS, devices=5)["/spec/devices"]


def test_what_nobody_names_needs_an_approval():
    assert checked(recovery={"auto": []})["recovery"]["approve"] == KINDS
    assert checked(recovery={"approve": KINDS})["recovery"]["auto"] == []
    assert checked(recovery={"auto": ["exclude"]})["recovery"]["approve"] == [
        "rebalance", "repartition", "regroup",
    ]  # fmt: skip


def test_ranks_are_numbered_through_replicas_stages_and_groups():
    layout = checked(layout={"replicas": [stages(2, 2, tensor_parallel=2), stages(4)]})["layout"]
    devices = [[s["devices"] for s in r["stages"]] for r in on_ranks(layout)["replicas"]]
    assert devices == [[["r0", "r1"], ["r2", "r3"]], [["r4"]]]


@settings(deadline=None)
@given(
    devices=st.integers(1, 12), layers=st.integers(1, 9), microbatches=st.none() | st.integers(1, 40),
    schedule=st.sampled_from(SCHEDULES),
)  # fmt: skip
def test_a_default_layout_owns_every_layer_once_and_runs_every_micro_batch(
    devices, layers, microbatches, schedule
):
    spec = {"devices": devices, "parameters": {"layers": layers}, "microbatches": microbatches}
    allowed = {"/spec/microbatches", "/spec/devices", "/spec/layout/replicas/0/stages/0/layers"}
    made, pointers = outcome({"schedule": schedule, **spec})
    assert made or pointers & allowed
    if not made:
        return
    replicas = made["layout"]["replicas"]
    assert {sum(stage["layers"] for stage in replica["stages"]) for replica in replicas} == {layers}
    assert sum(replica["microbatches"] for replica in replicas) == made["microbatches"]
    assert microbatches in (None, made["microbatches"])


@settings(deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["workload", "layout", "replicas", "stages", "layers", "steps", "recovery", "x"]),
        inner, max_size=4),
    max_leaves=12,
))  # fmt: skip
def test_whatever_is_given_is_accepted_or_refused_with_pointers(value):
    spec = value if isinstance(value, dict) else {"layout": value, "steps": value, "recovery": value}
    made, pointers = outcome(spec)
    assert bool(made) != bool(pointers)
    assert all(pointer.startswith("/spec") for pointer in pointers)


def test_the_schema_names_every_field_of_a_checked_spec():
    assert set(spec_schema()["properties"]) == set(checked())
