"""Tiles of programs written by hand: layouts through views, sums as soon as possible, what runs whole."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.overlap.assembly import WorkGraph, assemble
from jobs.core.overlap.clusters import read_cluster
from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.graph import Kind, given_order
from jobs.core.overlap.layouts import Layout, after_view, tile_sizes
from jobs.core.overlap.memory import memory_profile
from jobs.core.overlap.operations import (
    COLLECTIVE,
    MUTATES,
    POINTWISE,
    WAIT,
    CapturedProgram,
    Operation,
    Ref,
    TensorFact,
)
from jobs.core.overlap.questions import Question, recall
from jobs.core.overlap.rewriting import plan_digests, reorder
from jobs.core.overlap.simulator import simulate
from jobs.core.overlap.tiling import tile

BATCH, WIDTH = 6, 8


def fact(*shape):
    return TensorFact(shape, 4)


def step():
    """loss = sum of all_reduce(x @ w), and the weight's gradient x' @ x."""
    reduced = frozenset({COLLECTIVE})
    operations = (
        Operation("mm", "aten.mm.default", (Ref("x"), Ref("w")), results=(fact(BATCH, WIDTH),)),
        Operation(
            "ar", "_c10d_functional.all_reduce.default", (Ref("mm"), "sum", "tp"),
            results=(fact(BATCH, WIDTH),), traits=reduced,
        ),
        Operation(
            "wait", "_c10d_functional.wait_tensor.default", (Ref("ar"),),
            results=(fact(BATCH, WIDTH),), traits=frozenset({WAIT}),
        ),
        Operation("t", "aten.t.default", (Ref("x"),), results=(fact(WIDTH, BATCH),)),
        Operation("gradient", "aten.mm.default", (Ref("t"), Ref("wait")), results=(fact(WIDTH, WIDTH),)),
        Operation("loss", "aten.sum.default", (Ref("wait"),), results=(fact(),)),
    )  # fmt: skip
    inputs = {"x": fact(BATCH, WIDTH), "w": fact(WIDTH, WIDTH)}
    return CapturedProgram(inputs, operations, [Ref("loss"), Ref("gradient")])


def names(program):
    return [operation.name for operation in program.operations]


@given(
    before=st.lists(st.sampled_from([1, 2, 3]), max_size=2),
    after=st.lists(st.sampled_from([1, 2, 5]), max_size=2),
    batch=st.sampled_from([2, 4, 7]),
    cuts=st.lists(st.integers(0, 5), max_size=3),
)
def test_a_view_keeps_the_batch_where_its_elements_are(before, after, batch, cuts):
    whole = [*before, batch, *after]
    edges = sorted({0, len(whole), *[cut % (len(whole) + 1) for cut in cuts]})
    merged = [prod(whole[a:b]) for a, b in zip(edges, edges[1:], strict=False)]
    place = after_view(Layout(len(before)), whole, merged, batch)
    assert place is not None
    # The element of sample s and first other indexes has the same flat position in both shapes.
    trailing = prod(after)
    for sample in range(batch):
        flat = sample * trailing
        inside = flat // prod(merged[place.dim + 1 :]) % merged[place.dim]
        assert inside // place.inner % batch == sample
    assert after_view(place, merged, whole, batch) is not None


def test_a_view_that_cuts_the_batch_apart_is_not_followed():
    assert after_view(Layout(0), (4, 6), (2, 2, 6), 4) is None


def test_sizes_are_as_equal_as_possible_and_add_up():
    assert tile_sizes(7, 3) == (3, 2, 2)
    assert tile_sizes(4, 2) == (2, 2)


def test_the_gradient_of_a_shared_weight_is_summed_and_each_tile_stays_in_order():
    made = tile(step(), {"x": 0}, 3)
    assert made.sizes == (2, 2, 2)
    order = names(made.program)
    assert [name for name in order if name.startswith("gradient")] == [
        "gradient_tile0", "gradient_tile1", "gradient_sum1", "gradient_tile2", "gradient_sum2",
    ]  # fmt: skip
    assert made.program.outputs == [Ref("loss_sum2"), Ref("gradient_sum2")]
    for number in range(3):
        own = [o for o in made.program.operations if o.tile == number]
        assert [o.source for o in own if o.source] == ["mm", "ar", "wait", "t", "gradient", "loss"]
    # One after the other: nothing of the second tile before the first is through.
    assert order.index("loss_tile0") < order.index("mm_tile1")


def test_an_operator_without_a_rule_runs_once_for_the_whole_batch():
    odd = Operation("odd", "aten.fft_c2c.default", (Ref("wait"),), results=(fact(BATCH, WIDTH),))
    known = step()
    program = CapturedProgram(known.inputs, (*known.operations, odd), [Ref("odd")])
    made = tile(program, {"x": 0}, 2)
    assert dict(made.untiled) == {"odd": "no rule says what this operator does with the batch"}
    by_name = {operation.name: operation for operation in made.program.operations}
    assert by_name["odd"].args == (Ref("wait_whole"),)
    assert by_name["wait_whole"].args[0] == [Ref("wait_tile0"), Ref("wait_tile1")]


def test_a_shared_operand_is_sliced_where_it_has_the_batch():
    mask = Operation(
        "masked", "aten.mul.Tensor", (Ref("x"), Ref("mask")), results=(fact(BATCH, WIDTH),),
        traits=frozenset({POINTWISE}),
    )  # fmt: skip
    inputs = {"x": fact(BATCH, WIDTH), "mask": fact(BATCH, 1)}
    made = tile(CapturedProgram(inputs, (mask,), Ref("masked")), {"x": 0}, 2)
    sliced = next(o for o in made.program.operations if o.name == "mask_part1")
    assert (sliced.target, sliced.args) == ("aten.slice.Tensor", (Ref("mask"), 0, 3, 6))


def test_a_graph_that_is_not_functional_is_refused():
    change = Operation(
        "add_", "aten.add_.Tensor", (Ref("mm"), 1), results=(fact(BATCH, WIDTH),), traits=frozenset({MUTATES})
    )
    known = step()
    program = CapturedProgram(known.inputs, (*known.operations[:1], change), Ref("add_"))
    with pytest.raises(ProgramRefused, match="node add_: aten.add_.Tensor changes a tensor in place"):
        tile(program, {"x": 0}, 1)


def test_the_graph_survives_its_json_form_and_gets_the_times_of_a_cluster():
    made = tile(step(), {"x": 0}, 2)
    work = assemble(made.program, made.sizes, lambda group: range(8))
    again = WorkGraph.from_json(work.to_json())
    assert again == work
    fast, slow = (again.on(read_cluster(name).cluster) for name in ("h100x8", "a100x4"))
    comm = [index for index, node in enumerate(fast.nodes) if node.kind is Kind.COMM]
    assert len(comm) == 2
    # Eight ranks on nodes of four cross the network.
    assert all(slow.nodes[index].time_s > fast.nodes[index].time_s > 0 for index in comm)
    assert work.base_bytes == (BATCH + WIDTH) * WIDTH * 4


def test_merged_all_reduces_become_one_call_and_change_the_digest():
    made = tile(step(), {"x": 0}, 2)
    order = [name for name in names(made.program) if not name.startswith(("ar", "wait"))]
    order = ["mm_tile0", "mm_tile1", "ar_tile0", "ar_tile1", "wait_tile0", "wait_tile1"] + [
        name for name in order if not name.startswith("mm")
    ]
    plain, merged = (reorder(made.program, order, buckets) for buckets in ([], [["ar_tile0", "ar_tile1"]]))
    call = next(o for o in merged.operations if o.name == "ar_tile0_merged")
    assert call.args == ([Ref("mm_tile0"), Ref("mm_tile1")], "sum", "tp")
    digests = [plan_digests(one, step()) for one in (plain, merged, made.program)]
    assert digests[0] != digests[1]
    assert digests[0] == digests[2]
    with pytest.raises(ValueError, match="every operator"):
        reorder(made.program, order[:-1])


@pytest.mark.parametrize("buckets", [[], [["ar_tile0", "ar_tile1"]]])
def test_the_same_collectives_of_equal_shapes_in_another_order_have_another_digest(buckets):
    made = tile(step(), {"x": 0}, 2)
    order = [name for name in names(made.program) if not name.startswith(("mm", "ar", "wait"))]
    digests = []
    for tiles in ((0, 1), (1, 0)):
        launched = [f"{name}_tile{k}" for name in ("mm", "ar", "wait") for k in tiles]
        named = [[f"ar_tile{k}" for k in tiles]] if buckets else []
        digests.append(plan_digests(reorder(made.program, launched + order, named), step()))
    assert digests[0] != digests[1]


def test_other_groups_and_names_do_not_change_a_digest():
    plain = step()
    beside = Operation(
        "ar_0", "_c10d_functional.all_reduce.default", (Ref("x"), "sum", "pp"),
        results=(fact(BATCH, WIDTH),), traits=frozenset({COLLECTIVE}),
    )  # fmt: skip
    more = CapturedProgram(plain.inputs, (beside, *plain.operations), plain.outputs)
    assert plan_digests(more)["tp"] == plan_digests(plain)["tp"]


def test_a_plan_is_recalled_from_its_document_with_its_buckets():
    works = {}
    for number in (1, 2):
        made = tile(step(), {"x": 0}, number)
        works[number] = assemble(made.program, made.sizes, lambda group: range(8))
    graph = works[2].on(read_cluster("a100x8").cluster)
    rest = [node.name for node in graph.nodes if not node.name.startswith(("mm", "ar", "wait"))]
    order = ["mm_tile0", "mm_tile1", "ar_tile0", "ar_tile1", "wait_tile0", "wait_tile1", *rest]
    document = {
        "policy": "bucketed", "exact": False, "order": order, "buckets": [["ar_tile0", "ar_tile1"]],
        "peak_bytes": 1, "serial_peak_bytes": 1, "serial_makespan": 1.0,
    }  # fmt: skip
    found = recall(works, Question(2, "bucketed"), document)
    named = [[graph.nodes[member].name for member in one] for one in found.plan.chosen.steps]
    assert named == [[name] for name in order[:2]] + [order[2:4]] + [[name] for name in order[4:]]
    assert found.timeline == simulate(graph, found.plan.chosen.steps)
    assert found.whole.nodes[0].name == "mm"


def test_parts_and_turned_views_take_no_time_and_no_bytes_and_keep_the_whole_storage_alive():
    half = fact(BATCH, WIDTH // 2)
    operations = (
        Operation("big", "aten.relu.default", (Ref("x"),), results=(fact(BATCH, WIDTH),)),
        Operation("parts", "aten.split.Tensor", (Ref("big"), 4, 1), results=(half, half), single=False),
        Operation("first", "getitem", (Ref("parts"), 0), results=(half,)),
        Operation("turned", "aten.transpose.int", (Ref("first"), 0, 1), results=(fact(WIDTH // 2, BATCH),)),
        Operation("small", "aten.sum.default", (Ref("turned"),), results=(fact(),)),
    )
    program = CapturedProgram({"x": fact(BATCH, WIDTH)}, operations, Ref("small"))
    graph = assemble(program, (BATCH,), lambda group: range(8)).on(read_cluster("a100x8").cluster)
    by_name = {node.name: node for node in graph.nodes}
    for name in ("parts", "first", "turned"):
        node = by_name[name]
        assert (node.kind, node.time_s, node.size_bytes) == (Kind.VIEW, 0.0, 0)
    sizes = [by_name[name].size_bytes for name in ("big", "small")]
    assert memory_profile(graph, given_order(graph)).live_bytes == (*[sizes[0]] * 4, sum(sizes))


def test_all_results_of_an_operator_appear_together_and_each_goes_with_its_own_users():
    other, small = fact(BATCH, WIDTH), fact(BATCH, 1)
    operations = (
        Operation(
            "pair", "aten.native_layer_norm.default", (Ref("x"),), results=(other, small), single=False
        ),
        Operation("between", "aten.relu.default", (Ref("x"),), results=(other,)),
        Operation("first", "getitem", (Ref("pair"), 0), results=(other,)),
        Operation("second", "getitem", (Ref("pair"), 1), results=(small,)),
        Operation("used", "aten.neg.default", (Ref("first"),), results=(other,)),
        Operation("last", "aten.neg.default", (Ref("second"),), results=(small,)),
    )  # fmt: skip
    program = CapturedProgram({"x": other}, operations, [Ref("between"), Ref("used"), Ref("last")])
    work = assemble(program, (BATCH,), lambda group: range(8))
    graph = work.on(read_cluster("a100x8").cluster)
    # An allocator gives each of these tensors 512 bytes.
    held = [storages * 512 for storages in (2, 3, 3, 3, 4, 4)]
    assert list(memory_profile(graph, given_order(graph)).live_bytes) == held
    assert WorkGraph.from_json(work.to_json()) == work
