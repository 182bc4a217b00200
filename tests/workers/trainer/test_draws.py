"""Parameters drawn again under another seed, as if the module were built under it."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from workers.trainer.draws import record_draws


class Rescaled(nn.Module):
    """A layer drawn once more after it was converted, and one that is thrown away."""

    def __init__(self) -> None:
        super().__init__()
        nn.Linear(32, 10)
        self.first = nn.Linear(6, 4).double()
        nn.init.normal_(self.first.weight, std=0.5)
        self.second = nn.Linear(4, 3)
        self.second = self.second.to(torch.bfloat16)


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "single": layers,
    "double": lambda: layers().double(),
    "half": lambda: layers().half(),
    "there and back": lambda: layers().double().float(),
    "in part": Rescaled,
    "LSTM": lambda: nn.LSTM(5, 7, num_layers=2).double(),
}


@pytest.mark.parametrize("build", MODULES.values(), ids=MODULES)
def test_a_parameter_is_drawn_as_if_the_module_were_built_under_the_seed(build: Callable[[], nn.Module]):
    torch.manual_seed(1)
    template, draws = record_draws(build)
    parameters = dict(template.named_parameters())
    fresh = draws.draw(parameters, seed=7)
    assert fresh.keys() == parameters.keys()
    for name, tensor in fresh.items():
        assert (tensor.dtype, tensor.shape) == (parameters[name].dtype, parameters[name].shape)
        if tensor.dim() > 1:
            assert not torch.equal(tensor, parameters[name])
    # what is not drawn any more draws no numbers, so only modules that keep all of their layers are compared
    if build is not Rescaled:
        torch.manual_seed(7)
        for name, tensor in build().named_parameters():
            torch.testing.assert_close(fresh[name], tensor.detach(), rtol=0, atol=0)


def test_memory_that_is_used_again_is_not_taken_for_what_lay_there():
    for _ in range(50):  # whether addresses come again is up to the allocator
        template, draws = record_draws(lambda: layers().double())
        fresh = draws.draw(dict(template.named_parameters()), seed=3)
        assert float(fresh["4.weight"].abs().max()) <= 1 / 32**0.5
        assert float(fresh["0.weight"].abs().max()) <= 1 / 64**0.5
