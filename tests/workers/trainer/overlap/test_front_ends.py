"""Four ways into the graph give the same operators, and plain in-place graphs are refused."""

import pytest
import torch
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.operations import COLLECTIVE, WAIT
from jobs.core.overlap.tiling import tile
from workers.trainer.overlap.capture import capture_export, capture_joint, capture_program
from workers.trainer.overlap.conversion import module_of, program_of
from workers.trainer.overlap.programs.catalogue import BUILT_IN
from workers.trainer.overlap.ranks import run_ranks
from workers.trainer.overlap.verification import relative_error
from workers.trainer.overlap.worlds import simulated_world


class Block(nn.Module):
    """Two products and an all-reduce; the loss on demand."""

    def __init__(self, *, loss: bool) -> None:
        super().__init__()
        self.up, self.down, self.loss = nn.Linear(8, 16), nn.Linear(16, 8, bias=False), loss

    def forward(self, x):
        reduced = functional.all_reduce(self.down(torch.relu(self.up(x))), "sum", "tp")
        return ((reduced - x).pow(2).mean(),) if self.loss else reduced + x


def tiled_run(captured, values, tiles=2):
    """Outputs of the original and of its tiles on two ranks that hold the same values."""
    made = tile(captured.program, captured.batch_dims, tiles)
    assert made.tiles == tiles
    outcomes = []
    with torch.no_grad():
        for program in (captured.program, made.program):
            module = module_of(program, captured.module)
            outcomes.append(run_ranks([module] * 2, [values, values], [captured.ranks_of] * 2))
    return outcomes


def test_an_exported_module_is_tiled():
    model, x = Block(loss=False), torch.randn(4, 3, 8)
    with simulated_world({"tp": [0, 1]}, 0):
        captured = capture_export(torch.export.export(model, (x,), strict=False), [0])
    values = [*model.state_dict().values(), x]
    whole, tiled = tiled_run(captured, values)
    assert relative_error(whole, tiled) < 1e-5


def test_a_joint_graph_of_aot_autograd_is_tiled_with_its_gradients():
    model, x = Block(loss=True), torch.randn(4, 3, 8)
    with simulated_world({"tp": [0, 1]}, 0):
        captured = capture_joint(model, [x], [0])
    assert sum(COLLECTIVE in operation.traits for operation in captured.program.operations) == 2
    values = [*model.state_dict().values(), x]
    whole, tiled = tiled_run(captured, values)
    assert relative_error(whole, tiled) < 1e-5


def test_a_whole_step_is_one_graph_and_every_collective_has_a_wait():
    program = capture_program(BUILT_IN["tp-transformer"].small(2)).program
    started = [operation.name for operation in program.operations if COLLECTIVE in operation.traits]
    waited = [operation.args[0].name for operation in program.operations if WAIT in operation.traits]
    assert sorted(started) == sorted(waited)
    assert len(started) == 8


def test_a_graph_with_operations_in_place_is_refused_with_the_operator():
    def step(x):
        y = x + 1
        y.mul_(2)
        return y

    module = make_fx(step, tracing_mode="fake")(torch.ones(4))
    with pytest.raises(ProgramRefused, match="node mul_: aten.mul_.Tensor changes a tensor in place"):
        tile(program_of(module), {next(iter(module.graph.nodes)).name: 0}, 2)
