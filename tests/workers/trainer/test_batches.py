"""Data is made once for a workload, and never taken for another's."""

import pytest
import torch
from torch import nn

import forebay
from workers.trainer.batches import Data, Samples, load_data
from workers.trainer.recipe import Recipe


class Wide(forebay.Workload):
    """A workload made for so many features."""

    name, space, metric, mode, epochs = "wide", {"lr": forebay.uniform(0.1, 1.0)}, "loss", "min", 1

    def __init__(self, features: int) -> None:
        self.features, self.made = features, 0

    def model(self, config):
        return nn.Sequential(nn.Linear(self.features, 8), nn.ReLU(), nn.Linear(8, 2))

    def data(self, config):
        self.made += 1
        pair = torch.zeros(4, self.features), torch.zeros(4, dtype=torch.long)
        return pair, pair

    def loss(self, output, target):
        return nn.functional.cross_entropy(output, target)

    def optimizer(self, config):
        return torch.optim.SGD, {"lr": config["lr"]}


def test_data_is_made_once_for_each_workload() -> None:
    workload = Wide(3)
    first = load_data(workload, {"lr": 0.1}, "cpu")
    assert load_data(workload, {"lr": 0.2}, "cpu") is first
    assert workload.made == 1


def test_a_workload_does_not_get_what_one_before_it_at_the_same_address_has_left() -> None:
    for features in range(1, 40):
        workload = Wide(features)
        data = load_data(workload, {"lr": 0.1}, "cpu")
        assert data.example_inputs().shape == (2, features)
        recipe = Recipe(workload, data, torch.device("cpu"), 2, "mup", parametrized=True)
        assert recipe.template({"lr": 0.1}).module.get_parameter("0.weight").shape[1] == features
        del workload, data, recipe


@pytest.mark.parametrize(
    ("features", "samples", "sizes"),
    [
        (4, 1500, [1024, 476]),  # never more than this
        (1024, 150, [64, 64, 22]),  # 256 KiB of inputs
        (100_000, 150, [64, 64, 22]),  # never fewer than this
        (256, 300, [256, 44]),
        (0, 10, [10]),
    ],
)
def test_validation_goes_in_batches_of_so_many_bytes(features: int, samples: int, sizes: list[int]) -> None:
    split = Samples(None, torch.zeros(samples, features), torch.arange(samples), torch.device("cpu"))
    batches = list(Data(split, split).validation_batches())
    assert [len(targets) for _, targets in batches] == sizes
    assert torch.equal(torch.cat([targets for _, targets in batches]), torch.arange(samples))
