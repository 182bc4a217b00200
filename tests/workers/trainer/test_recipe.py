"""The models of fused trials: each has the weights it would have alone."""

from typing import Any

import pytest
import torch
from torch import nn

import forebay
from tuning.core import hydro
from tuning.core.study.actions import Member
from workers.trainer.batches import load_data
from workers.trainer.orders import Setting
from workers.trainer.recipe import Recipe


class Gained(forebay.Workload):
    """A model whose first weights depend on its configuration."""

    space = {"lr": forebay.loguniform(1e-2, 1e-1), "gain": forebay.uniform(0.5, 2.0)}
    metric, mode, epochs = "loss", "min", 1
    built = 0

    def model(self, config: Any) -> nn.Module:
        type(self).built += 1
        model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
        with torch.no_grad():
            model[2].weight.mul_(config["gain"])
        return model

    def data(self, config: Any) -> Any:
        points, labels = torch.ones(8, 2), torch.arange(8) % 2
        return (points, labels), (points, labels)

    def optimizer(self, config: Any) -> Any:
        return torch.optim.SGD, {"lr": config["lr"]}


def _recipe(scaling: int) -> Recipe:
    workload = Gained()
    setting = Setting("gained", "", 0, scaling=scaling, threads=1)
    return Recipe.of(workload, load_data(workload, {}, "cpu"), setting)


@pytest.mark.parametrize("scaling", [1, 4])
def test_fused_trials_have_the_weights_they_would_have_alone(scaling: int) -> None:
    recipe = _recipe(scaling)
    gains = [1.0, 1.0, 1.5, 1.0] if scaling == 1 else [1.0] * 4  # a surrogate's shape includes the gain
    seeds = [3, 5, 3, 3]
    members = [
        Member(trial, {"lr": 0.1, "gain": gain}, seed)
        for trial, (gain, seed) in enumerate(zip(gains, seeds, strict=True))
    ]
    fused = recipe.fused(members)
    for index, member in enumerate(members):
        alone = recipe.model(member.config, member.seed)
        for name, weight in hydro.extract(fused, index).state_dict().items():
            assert torch.equal(weight, alone.state_dict()[name]), (index, name)


class Masked(nn.Module):
    """A fixed random mask, kept out of the state dict, before what is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.rand(2), persistent=False)
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.layers(points * self.mask)


class Masking(Gained):
    def model(self, config: Any) -> nn.Module:
        return Masked()


def test_a_target_has_every_tensor_of_the_users_own_model() -> None:
    workload, config = Masking(), {"lr": 0.1}
    setting = Setting("masking", "", 0, scaling=4, threads=1)
    recipe = Recipe.of(workload, load_data(workload, config, "cpu"), setting, target=True)
    found = recipe.model(config, seed=7)
    torch.manual_seed(7)
    own = Masked()
    for name, tensor in [*own.named_parameters(), *own.named_buffers()]:
        assert torch.equal(dict([*found.named_parameters(), *found.named_buffers()])[name], tensor), name


def test_equal_trials_are_drawn_once() -> None:
    recipe = _recipe(1)
    recipe.template({"lr": 0.1, "gain": 1.0})
    before = Gained.built
    recipe.fused([Member(trial, {"lr": 0.1, "gain": 1.0}, 0) for trial in range(8)])
    assert Gained.built == before + 1


def test_all_of_hydro_is_loaded_for_processes_that_fork() -> None:
    hydro.load_all()
    assert all(name in vars(hydro) for name in hydro.__all__)
