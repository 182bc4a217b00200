"""Mistakes that the public code of Hydro makes when it shrinks a model, and ours must not."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuning.core import hydro
from tuning.core.hydro.groups import parameter_groups

pytestmark = pytest.mark.filterwarnings("ignore::tuning.core.hydro.errors.HydroWarning")


def rates(surrogate: nn.Module, lr: float) -> dict[str, float]:
    names = {id(parameter): name for name, parameter in surrogate.named_parameters()}
    return {names[id(p)]: group["lr"] for group in parameter_groups(surrogate, lr) for p in group["params"]}


def test_learning_rate_factors_do_not_depend_on_company() -> None:
    """There they vanish where the trials of a container share one learning rate."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    surrogate = hydro.shrink(model, torch.randn(2, 64), scaling=8, optimizer="sgd")
    one, two = rates(surrogate, 0.1), rates(surrogate, 0.2)
    assert one == pytest.approx({name: rate / 2 for name, rate in two.items()})
    assert (one["0.weight"], one["2.weight"], one["4.weight"]) == pytest.approx((0.0125, 0.1, 0.0125))


def test_a_model_that_starts_with_flatten_keeps_its_input() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10))
    surrogate = hydro.shrink(model, torch.randn(2, 3, 4, 4), scaling=8)
    assert surrogate.get_parameter("1.weight").shape == (4, 48)
    assert surrogate(torch.randn(5, 3, 4, 4)).shape == (5, 10)


@pytest.mark.parametrize(
    "end", [nn.LogSoftmax(-1), nn.Softmax(1), nn.Sigmoid(), nn.Identity(), nn.Dropout(0.1)]
)
def test_whatever_ends_a_model_its_classes_stay(end: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 10), end)
    surrogate = hydro.shrink(model, torch.randn(2, 6), scaling=8)
    assert surrogate.get_parameter("2.weight").shape == (10, 4)
    assert (hydro.rules_of(surrogate) or {})["2.weight"].role == "output"


def test_parameters_that_are_used_after_the_last_layer_do_not_move_it() -> None:
    class Tempered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(6, 32), nn.Linear(32, 10)
            self.temperature, self.gain = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.ones(10))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(F.relu(self.body(x))) * self.gain / self.temperature

    surrogate = hydro.shrink(Tempered(), torch.randn(2, 6), scaling=8)
    assert surrogate.get_parameter("head.weight").shape == (10, 4)
    assert surrogate.get_parameter("gain").tolist() == [1.0] * 10
    assert float(surrogate.get_parameter("temperature")) == 2.0
    assert not surrogate.get_parameter("head.weight").any()


LAYERS: dict[str, tuple[nn.Module, tuple[str, ...]]] = {
    "padding by name": (
        nn.Conv2d(32, 32, 3, padding="same", padding_mode="reflect"),
        ("padding", "padding_mode"),
    ),
    "no momentum": (nn.BatchNorm2d(32, momentum=None), ("momentum", "eps")),
    "no affine weights": (nn.BatchNorm2d(32, affine=False, eps=1e-3), ("affine", "eps")),
    "dilation and stride": (nn.Conv2d(32, 32, 3, 2, 2, dilation=2, bias=False), ("stride", "dilation")),
    "group norm": (nn.GroupNorm(8, 32, eps=1e-3), ("eps", "affine")),
    "instance norm": (nn.InstanceNorm2d(32, affine=True), ("affine",)),
    "leaky": (nn.LeakyReLU(0.3), ("negative_slope",)),
    "transposed": (nn.ConvTranspose2d(32, 32, 2, 2, output_padding=1), ("output_padding",)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_option_of_a_layer_survives(name: str) -> None:
    """There layers are rebuilt from their printed form, which loses or breaks on many options."""
    layer, options = LAYERS[name]
    model = nn.Sequential(nn.Conv2d(3, 32, 1), layer, nn.Conv2d(32, 4, 1)).double()
    surrogate = hydro.shrink(model, torch.randn(2, 3, 8, 8).double(), scaling=4)
    twin = surrogate.get_submodule("1")
    assert type(twin) is type(layer)
    assert {option: getattr(twin, option) for option in options} == {
        option: getattr(layer, option) for option in options
    }
    assert all(parameter.dtype is torch.float64 for parameter in surrogate.parameters())


@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(32, bias=False), nn.LayerNorm(32), nn.RMSNorm(32), nn.LayerNorm((4, 32))]
)
def test_norms_start_at_one_and_zero(norm: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(6, 32), norm, nn.Linear(32, 3))
    surrogate = hydro.shrink(model, torch.randn(2, 4, 6), scaling=4)
    assert bool((surrogate.get_parameter("1.weight") == 1).all())
    assert surrogate.get_parameter("1.weight").shape[-1] == 8


def test_an_embeddings_variance_is_not_divided_by_vocabulary_or_width() -> None:
    torch.manual_seed(0)
    for scaling in (1, 8):
        model = nn.Sequential(nn.Embedding(300, 128), nn.Linear(128, 3))
        surrogate = hydro.shrink(model, torch.randint(0, 300, (2, 4)), scaling=scaling)
        assert float(surrogate.get_parameter("0.weight").detach().std()) == pytest.approx(1.0, rel=0.05)


def test_a_strange_name_is_not_a_width() -> None:
    """Sizes that agree by accident do not shrink: classes, channels and lengths equal to the hidden width."""
    model = nn.Sequential(nn.Conv1d(32, 32, 1), nn.ReLU(), nn.Conv1d(32, 32, 1))
    surrogate = hydro.shrink(model, torch.randn(32, 32, 32), scaling=8)
    assert surrogate.get_parameter("0.weight").shape == (4, 32, 1)
    assert surrogate.get_parameter("2.weight").shape == (32, 4, 1)
    assert surrogate(torch.randn(3, 32, 9)).shape == (3, 32, 9)


def test_the_real_ratio_multiplies_the_output() -> None:
    model = nn.Sequential(nn.Linear(6, 50), nn.ReLU(), nn.Linear(50, 3))
    surrogate = hydro.shrink(model, torch.randn(2, 6), scaling=8)
    x = torch.randn(4, 6)
    with torch.no_grad():
        surrogate.get_parameter("2.weight").normal_()
        hidden = F.relu(F.linear(x, surrogate.get_parameter("0.weight"), surrogate.get_parameter("0.bias")))
        expected = F.linear(hidden * (50 / 7), surrogate.get_parameter("2.weight"))
    torch.testing.assert_close(surrogate(x).detach(), expected)
