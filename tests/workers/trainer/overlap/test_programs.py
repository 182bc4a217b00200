"""The built-in programs: right in themselves, and the same in tiles on every rank."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from jobs.core.overlap.clusters import read_cluster
from jobs.core.overlap.errors import ProgramRefused
from workers.trainer.overlap.capture import capture_program
from workers.trainer.overlap.conversion import module_of
from workers.trainer.overlap.loading import load_program
from workers.trainer.overlap.programs.catalogue import BUILT_IN
from workers.trainer.overlap.ranks import run_ranks
from workers.trainer.overlap.study import Request, run_study
from workers.trainer.overlap.verification import capture_ranks, rank_values, relative_error

RANKS = 4


def split(value, dim, rank, ranks):
    return value.chunk(ranks, dim)[rank].contiguous()


TRAINED = sorted(name for name, one in BUILT_IN.items() if one.train)


@pytest.mark.parametrize("name", TRAINED)
def test_tiles_and_another_order_give_the_same_numbers_on_four_ranks(name):
    small = BUILT_IN[name].sized(RANKS, layers=1)
    # The program is its own rehearsal: where first and last rank have one graph, all have it.
    document = run_study(
        Request(name, tiles=2, policy="round-robin"), replace(small, rehearsal=lambda: small)
    )
    assert document["tiles"] == 2
    assert document["untiled"] == []
    assert document["verification"]["ranks"] == RANKS
    assert document["verification"]["passed"]
    assert document["verification"]["max_rel_error"] < 1e-5
    assert document["makespan"] < document["serial_makespan"]


def test_a_built_in_program_is_captured_at_the_size_that_is_asked_for():
    cluster = read_cluster("a100x8")
    program = load_program("tp-transformer", cluster, {"ranks": 2, "width": 64, "heads": 4, "layers": 3})
    assert program.groups == {"ranks": [0, 1]}
    assert len({name.split(".")[0] for name in program.params}) == 3
    assert tuple(program.params["0.q"].shape) == (64, 32)


@pytest.mark.parametrize(
    ("program", "size", "said"),
    [
        ("tp-transformer", {"heads": 12, "width": 96}, "heads = 12 cannot be dealt to 8 ranks"),
        ("tp-transformer", {"width": 100}, "a width of 100 cannot be cut into 32 heads"),
        ("ulysses-transformer", {"tokens": 12}, "tokens = 12 cannot be dealt to 8 ranks"),
        ("moe-transformer", {"layers": 17}, "layers must be a whole number from 1 to 16"),
        ("os.path:join", {"layers": 1}, "is for built-in programs"),
    ],
)
def test_a_size_that_does_not_work_out_is_refused_with_the_reason(program, size, said):
    with pytest.raises(ProgramRefused, match=f"size: .*{said}|size: {said}"):
        load_program(program, read_cluster("a100x8"), size)


def reference_block(x, w):
    """One transformer block as anybody would write it, not split over anything."""
    normed = F.layer_norm(x, x.shape[-1:], w["0.n1.gain"], w["0.n1.bias"])
    heads = [(normed @ w[f"0.{part}"]).view(*x.shape[:2], 4, -1).transpose(1, 2) for part in ("q", "k", "v")]
    mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(x.shape)
    x = x + mixed @ w["0.o"]
    normed = F.layer_norm(x, x.shape[-1:], w["0.n2.gain"], w["0.n2.bias"])
    return x + F.gelu(normed @ w["0.up"]) @ w["0.down"]


def test_tensor_parallel_gradients_are_those_of_the_model_on_one_device():
    program = BUILT_IN["tp-transformer"].sized(RANKS, layers=1)
    whole = {
        name: tuple(size * (RANKS if size in (8, 16) else 1) for size in value.shape)
        for name, value in program.params.items()
    }
    generator = torch.Generator().manual_seed(1)
    weights = {
        name: (torch.randn(shape, generator=generator) * 0.2).requires_grad_()
        for name, shape in whole.items()
    }
    x = torch.randn(program.inputs["x"].shape, generator=generator)
    loss = reference_block(x, weights).pow(2).mean()
    expected = dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True))
    parts = {"up": 1, "down": 0, "q": 1, "k": 1, "v": 1, "o": 0}

    def own(name, value, rank):
        dim = parts.get(name.split(".")[-1])
        return value.detach() if dim is None else split(value.detach(), dim, rank, RANKS)

    captured = capture_ranks(program, alike=True)
    values = [[*(own(name, weights[name], rank) for name in program.params), x] for rank in range(RANKS)]
    modules = [module_of(one.program, one.module) for one in captured]
    with torch.no_grad():
        outputs = run_ranks(modules, values, [one.ranks_of for one in captured])
    for rank, (found_loss, gradients) in enumerate(outputs):
        assert relative_error(loss.detach(), found_loss) < 1e-5
        for name, gradient in zip(program.params, gradients, strict=True):
            assert relative_error(own(name, expected[name], rank), gradient) < 2e-5, name


def test_ulysses_computes_attention_over_all_tokens():
    program = BUILT_IN["ulysses-transformer-inference"].sized(RANKS, layers=1)
    generator = torch.Generator().manual_seed(2)
    weights = {
        name: torch.randn(value.shape, generator=generator) * 0.2 for name, value in program.params.items()
    }
    batch, tokens, width = program.inputs["x"].shape
    x = torch.randn(batch, tokens * RANKS, width, generator=generator)
    captured = capture_ranks(program, alike=True)
    values = [[*weights.values(), split(x, 1, rank, RANKS)] for rank in range(RANKS)]
    modules = [module_of(one.program, one.module) for one in captured]
    with torch.no_grad():
        outputs = run_ranks(modules, values, [one.ranks_of for one in captured])
    assert relative_error(reference_block(x, weights), torch.cat(outputs, 1)) < 1e-5


def test_values_differ_between_ranks_only_where_weights_do():
    program = BUILT_IN["tp-transformer"].small(2)
    first, second = rank_values(program, 0, 0), rank_values(program, 1, 0)
    assert torch.equal(first[-1], second[-1])
    assert not torch.equal(first[0], second[0])
    assert capture_program(program).inputs[-1] == "inputs.x"
