"""A model alone on a CPU keeps its images channels-last: the same values, and none where PyTorch errs."""

import copy
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from tuning.core.study.actions import Member
from workers.trainer.batches import load_data
from workers.trainer.loading import load_workload
from workers.trainer.memory_order import prefer_channels_last
from workers.trainer.recipe import Recipe
from workers.trainer.solo import build_lone


class Branches(nn.Module):
    """Convolutions of all kinds, two of which meet in a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.wide = nn.Conv2d(8, 12, 3, stride=2, padding=1)
        self.pointwise = nn.Conv2d(8, 12, 1, stride=2, bias=False)
        self.grouped = nn.Conv2d(12, 12, 3, padding=1, groups=4)
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.norm = nn.BatchNorm2d(6)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        value = F.relu(self.stem(images))
        value = self.wide(value) + self.pointwise(value)
        return self.norm(self.up(F.relu(self.grouped(value)))).flatten(1)


TRAIN = """
import copy
import runpy
import sys
import torch
from torch import fx
from workers.trainer.memory_order import prefer_channels_last

here = runpy.run_path(sys.argv[1])
run = here["run"]
torch.manual_seed(0)
plain = fx.symbolic_trace(here["Branches"]())
model = copy.deepcopy(plain)
prefer_channels_last(model)
images = torch.randn(32, 3, 14, 14)
for one in (plain, model):
    optimizer = torch.optim.SGD(one.parameters(), lr=1e-6)
    for _ in range(20):
        optimizer.zero_grad()
        run(one, images)
        optimizer.step()
for one, other in zip(plain.parameters(), model.parameters(), strict=True):
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
"""


def run(model: nn.Module, images: torch.Tensor) -> list[torch.Tensor]:
    images = images.clone().requires_grad_()
    output = model(images)
    (output * torch.cos(output.detach())).sum().backward()
    return [output, images.grad, *(parameter.grad for parameter in model.parameters())]


def test_values_and_gradients_are_those_of_the_plain_order():
    torch.manual_seed(0)
    plain = fx.symbolic_trace(Branches()).double()
    model = copy.deepcopy(plain)
    prefer_channels_last(model)
    images = torch.randn(4, 3, 10, 10, dtype=torch.float64)
    for one, other in zip(run(plain, images), run(model, images), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_layers_take_the_order_but_for_pointwise_ones_without_groups():
    model = fx.symbolic_trace(Branches())
    prefer_channels_last(model)
    layers = {"stem", "wide", "pointwise", "grouped", "up"}
    changed = {name for name in layers if not model.get_submodule(name).weight.is_contiguous()}
    assert changed == layers - {"pointwise"}
    seen = []
    model.wide.register_forward_hook(lambda layer, inputs, output: seen.append(output))
    model.pointwise.register_forward_hook(lambda layer, inputs, output: seen.append(output))
    model(torch.randn(4, 3, 10, 10))
    assert [value.is_contiguous() for value in seen] == [False, True]


@pytest.mark.parametrize(
    "model", [Branches(), fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), nn.Conv2d(2, 2, 3)]
)
def test_a_model_whose_graph_is_not_known_or_has_no_images_stays_as_it_is(model):
    prefer_channels_last(model)
    assert all(parameter.is_contiguous() for parameter in model.parameters())


def test_a_graph_that_calls_a_convolution_itself_stays_as_it_is():
    class Functional(Branches):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return F.conv2d(self.stem(images), self.pointwise.weight, stride=2)

    model = fx.symbolic_trace(Functional())
    prefer_channels_last(model)
    assert all(parameter.is_contiguous() for parameter in model.parameters())


def test_training_in_single_precision_neither_drifts_nor_crashes():
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, __file__], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize("dropout", [nn.Dropout(0.5), nn.AlphaDropout(0.5)])
def test_masks_drawn_by_element_stay_those_of_the_plain_order(dropout):
    plain = fx.symbolic_trace(nn.Sequential(nn.Conv2d(2, 4, 3), dropout, nn.Conv2d(4, 4, 3)))
    model = copy.deepcopy(plain)
    prefer_channels_last(model)
    images = torch.randn(3, 2, 9, 9)
    outputs = []
    for one in (plain, model):
        torch.manual_seed(0)
        outputs.append(one.train()(images))
    torch.testing.assert_close(*outputs)


def test_a_full_width_target_trains_so_and_a_surrogate_does_not():
    workload = load_workload("mnist-cnn", {"width": 64})
    config = {"lr": 0.01, "momentum": 0.9, "batch_size": 32, "gamma": 0.5}
    data = load_data(workload, config, "cpu")
    for scaling, plain in ((1, False), (8, True)):
        recipe = Recipe(workload, data, torch.device("cpu"), scaling, "mup", parametrized=True)
        lone = build_lone(recipe, Member(0, config, 0))
        assert lone.model.get_parameter("block1.conv1.weight").is_contiguous() is plain
