"""The hard cases: right, or refused with the operator and the reason; never silently wrong."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F

from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.program import Program
from workers.trainer.overlap.ranks import RanksDisagree

GROUPS = {"tp": [0, 1]}


def program_of(step, inputs, batch_dims=None, params=None, **rest):
    dims = {"x": 0} if batch_dims is None else batch_dims
    return Program(step, params or {}, inputs, rest.pop("groups", GROUPS), dims, **rest)


def reasons(document):
    return {row["node"]: row["reason"] for row in document["untiled"]}


def check(document, tiles=2, tolerance=1e-5):
    assert document["tiles"] == tiles
    verified = document["verification"]
    assert verified["passed"]
    assert verified["reordered_equals_serial"]
    assert verified["max_rel_error"] <= tolerance
    if document["untiled_makespan"] is not None:
        assert document["makespan"] <= document["serial_makespan"]


def test_a_value_read_before_and_after_its_collective_keeps_its_storage(study):
    def step(params, inputs):
        reduced = functional.all_reduce(inputs["x"] * 2, "sum", "tp")
        return torch.relu(inputs["x"] * 2) + reduced

    check(study(program_of(step, {"x": (4, 6)})))


def test_a_consumer_that_takes_the_collective_instead_of_its_wait_is_refused(study):
    def step(params, inputs):
        return torch.relu(torch.ops._c10d_functional.all_reduce(inputs["x"] + 1, "sum", "tp"))

    with pytest.raises(ProgramRefused, match=r"node relu\w*: takes the result of all_reduce"):
        study(program_of(step, {"x": (4, 6)}))


def test_plain_collectives_are_taken_as_functional_ones(study):
    def step(params, inputs):
        doubled = inputs["x"] * 2
        dist.all_reduce(doubled)
        gathered = torch.empty(8, 6)
        dist.all_gather_into_tensor(gathered, inputs["x"] + 1)
        return doubled + inputs["x"], gathered

    document = study(program_of(step, {"x": (4, 6)}))
    check(document)
    assert not document["untiled"]


def test_an_asynchronous_collective_is_refused(study):
    def step(params, inputs):
        doubled = inputs["x"] * 2
        dist.all_reduce(doubled, async_op=True).wait()
        return doubled

    with pytest.raises(ProgramRefused, match="async"):
        study(program_of(step, {"x": (4, 6)}))


def test_readers_of_an_input_come_before_it_is_changed(study):
    def step(params, inputs):
        reduced = functional.all_reduce(inputs["x"] + 0, "sum", "tp")
        late = inputs["x"] * 3
        inputs["x"].add_(1)
        return reduced + late + inputs["x"]

    document = study(program_of(step, {"x": (4, 6)}))
    check(document)
    order = document["order"]
    assert order[order.index("copy_") + 1] == "after_copy_"
    assert max(order.index(name) for name in order if name.startswith(("mul", "all_reduce"))) < order.index(
        "copy_"
    )


def test_ranks_that_issue_collectives_in_another_order_are_an_error_before_any_runs(study):
    def step(params, inputs):
        x = inputs["x"]
        parts = (x + 1, (x + 2)[:, :3])
        if dist.get_rank():
            parts = parts[::-1]
        first, second = (functional.all_reduce(part.contiguous(), "sum", "tp") for part in parts)
        return first.sum() + second.sum()

    with pytest.raises(RanksDisagree, match="same collectives in the same order"):
        study(program_of(step, {"x": (4, 6)}))


def test_nothing_moves_across_a_communication_operator_that_is_not_known(study):
    library = torch.library.Library("forebay_test", "DEF")
    library.define("send(Tensor x) -> ()")
    library.impl("send", lambda x: None, "CompositeExplicitAutograd")
    torch.library.register_fake("forebay_test::send", lambda x: None, lib=library)

    def step(params, inputs):
        first = functional.all_reduce(inputs["x"] + 1, "sum", "tp")
        torch.ops.forebay_test.send(params["flag"])
        second = functional.all_reduce(inputs["x"] * 2, "sum", "tp")
        return first + second

    document = study(program_of(step, {"x": (4, 6)}, params={"flag": (2,)}))
    check(document)
    order = document["order"]
    barrier = next(index for index, name in enumerate(order) if name.startswith("send"))
    before = {name for name in order[:barrier] if name.startswith(("add", "all_reduce_tile"))}
    assert {"all_reduce_tile0", "all_reduce_tile1"} <= before
    assert all(order.index(f"all_reduce_1_tile{k}") > barrier for k in (0, 1))
    assert any(d["action"] == "barrier" and "send" in d["node"] for d in document["decisions"])


def test_a_view_keeps_the_whole_storage_and_costs_nothing(study):
    def step(params, inputs):
        big = functional.all_reduce(inputs["x"] + 1, "sum", "tp")
        small = big[:, :1]
        busy = inputs["x"]
        for _ in range(3):
            busy = busy * 2
        return busy.sum(1, keepdim=True) + small

    document = study(program_of(step, {"x": (4, 1024)}), tiles=1)
    storage = 4 * 1024 * 4
    # While the products run: the reduced tensor, of which only a column is still needed, and two products.
    assert document["peak_bytes"] == 3 * storage


def test_batch_statistics_are_not_tiled_in_training_and_are_in_evaluation(study, column_row):
    def norm(training):
        def between(x):
            rows = x.flatten(0, 1)
            return F.batch_norm(rows, torch.zeros(32), torch.ones(32), training=training).view(x.shape)

        return between

    training = study(column_row(norm(True)))
    check(training)
    assert any("statistics over the batch" in reason for reason in reasons(training).values())
    evaluation = study(column_row(norm(False)))
    check(evaluation)
    assert not evaluation["untiled"]


def test_dropout_draws_the_masks_of_the_program(study, column_row):
    document = study(column_row(lambda x: F.dropout(x, 0.5), train=True))
    check(document)
    assert any("random numbers" in reason for reason in reasons(document).values())
    assert any(decision["action"] == "barrier" for decision in document["decisions"])


@pytest.mark.parametrize("tiles", [2, 4])
def test_gradients_of_shared_weights_add_up_over_tiles_as_soon_as_they_exist(study, column_row, tiles):
    document = study(column_row(F.gelu, train=True), tiles=tiles)
    check(document, tiles)
    order = document["order"]
    sums = [name for name in order if "_sum" in name]
    # Loss and two weights, each added tiles - 1 times, each right behind the later of its operands.
    assert len(sums) == 3 * (tiles - 1)
    for name in sums:
        before = order[order.index(name) - 1]
        assert "tile" in before or "_sum" in before or "share" in before


def test_sizes_known_only_at_run_time_are_barriers_and_the_rest_is_tiled(study):
    def step(params, inputs):
        counts = functional.all_to_all_single(params["counts"], None, None, "tp")
        sent, received = [params["counts"][i].item() for i in (0, 1)], [counts[i].item() for i in (0, 1)]
        for size in (*sent, *received):
            torch._check(size >= 0)
            torch._check(size <= 64)
        torch._check(sent[0] + sent[1] == 6)
        moved = functional.all_to_all_single(params["tokens"], received, sent, "tp")
        late = functional.all_reduce(torch.relu(inputs["x"]) @ params["w"], "sum", "tp")
        return F.silu(moved).sum(), late + inputs["x"]

    params = {"counts": torch.tensor([3, 3]), "tokens": (6, 4), "w": (8, 8)}
    document = study(program_of(step, {"x": (4, 8)}, params=params))
    check(document)
    assert sum("_local_scalar_dense" in name for name in document["order"]) == 4
    assert "mm_tile1" in document["order"]


def test_a_program_that_does_not_communicate_is_left_alone(study):
    document = study(program_of(lambda params, inputs: torch.relu(inputs["x"]), {"x": (4, 6)}))
    assert document["tiles"] == 1
    assert document["makespan"] == document["serial_makespan"]
    assert "does not communicate" in reasons(document)["program"]
    assert any(decision["action"] == "nothing to overlap" for decision in document["decisions"])


def test_a_collective_whose_result_nobody_uses_stays(study):
    def step(params, inputs):
        functional.all_reduce(inputs["x"] + 1, "sum", "tp")
        return functional.all_reduce(inputs["x"] * 2, "sum", "tp")

    document = study(program_of(step, {"x": (4, 6)}))
    check(document)
    assert sum(name.startswith("all_reduce") for name in document["order"]) == 4


def test_tiny_messages_are_not_tiled_when_the_number_is_free(study, column_row):
    document = study(column_row(F.gelu), tiles=None, policy="bucketed")
    assert document["tiles"] == 1
    assert {row["tiles"] for row in document["alternatives"]} == {1, 2, 3, 4}
    assert document["makespan"] <= min(row["makespan"] for row in document["alternatives"])


def test_no_plan_is_over_the_budget(study, column_row):
    from jobs.core.overlap.errors import OverBudget

    free = study(column_row(F.gelu, batch=8))
    tight = study(column_row(F.gelu, batch=8), memory_budget=free["serial_peak_bytes"], policy="bucketed")
    assert tight["peak_bytes"] <= free["serial_peak_bytes"] < free["peak_bytes"]
    with pytest.raises(OverBudget) as refused:
        study(column_row(F.gelu, batch=8), memory_budget=1.0)
    assert refused.value.smallest_peak_bytes > 1.0


def test_a_collective_along_the_batch_runs_whole_or_keeps_whole_batches_together(study):
    def step(params, inputs):
        wide = functional.all_gather_single(inputs["x"] + 1, 0, "tp")
        narrow = functional.reduce_scatter_single(torch.relu(wide), "sum", 0, "tp")
        cut = functional.reduce_scatter_single(inputs["x"] * 2, "sum", 0, "tp")
        return narrow, cut

    document = study(program_of(step, {"x": (4, 6)}))
    check(document)
    assert list(reasons(document)) == ["reduce_scatter_tensor_1"]
    assert "another part of the whole" in reasons(document)["reduce_scatter_tensor_1"]


@pytest.mark.parametrize(("batch", "tiles", "sizes"), [(5, 2, [3, 2]), (4, 3, [2, 1, 1])])
def test_an_uneven_batch_makes_uneven_tiles(study, column_row, batch, tiles, sizes):
    document = study(column_row(F.gelu, batch=batch, train=True), tiles=tiles)
    check(document, tiles)
    assert document["tile_sizes"] == sizes


def test_more_tiles_than_samples_leave_the_program_whole(study, column_row):
    document = study(column_row(F.gelu, batch=2), tiles=4)
    assert document["tiles"] == 1
    assert "cannot be cut into 4 tiles" in reasons(document)["inputs_x"]


def test_reductions_over_the_batch_are_added_up_or_run_whole(study, column_row):
    def between(x):
        return x + x.mean(0, keepdim=True) + x.amax((0, 1)) - x.var(0)

    document = study(column_row(between))
    check(document)
    assert list(reasons(document)) == ["var"]


def test_sequence_first_tensors_are_tiled_through_flattened_dimensions(study):
    def step(params, inputs):
        x = inputs["x"]
        rows = torch.relu(x.flatten(0, 1) @ params["w"])
        reduced = functional.all_reduce(rows, "sum", "tp")
        return reduced.view(x.shape) + x

    document = study(program_of(step, {"x": (3, 4, 8)}, {"x": 1}, params={"w": (8, 8)}))
    check(document)
    assert not document["untiled"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_dims": {"y": 0}}, "batch_dims: y is no input"),
        ({"batch_dims": {"x": 5}}, "batch_dims: x has 2 dimensions"),
        ({"groups": {"tp": [0, 0]}}, "each once"),
        ({"groups": {}}, "at least one group"),
        ({"inputs": {"x": "wide"}}, "inputs.x: a tensor or a shape"),
        ({"inputs": {"x": (4, 6), "z": (3, 6)}, "batch_dims": {"x": 0, "z": 0}}, "have to agree"),
        ({"step": None}, "step: a function"),
        ({"train": True}, "a single number"),
        ({"step": lambda params, inputs: inputs["q"]}, "KeyError"),
    ],
)
def test_a_malformed_program_is_refused_with_its_field(study, changes, said):
    fields = {
        "step": lambda params, inputs: functional.all_reduce(inputs["x"] + 1, "sum", "tp"),
        "params": {},
        "inputs": {"x": (4, 6)},
        "groups": GROUPS,
        "batch_dims": {"x": 0},
    }
    with pytest.raises(ProgramRefused, match=said):
        study(Program(**{**fields, **changes}))
