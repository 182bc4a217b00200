"""Bad input ends in one error that names the layer and says what to do."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuning.core import hydro


def mlp(width: int = 64) -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
    )


X = torch.randn(4, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scaling": 0}, "scaling is 0"),
        ({"scaling": 0.5}, "scaling is 0.5"),
        ({"scaling": float("nan")}, "scaling is nan"),
        ({"scaling": float("inf")}, "scaling is inf"),
        ({"scaling": "8"}, "scaling is '8'"),
        ({"scaling": True}, "scaling is True"),
        ({"depth_scaling": 0}, "depth_scaling is 0"),
        ({"min_width": 0}, "min_width is 0"),
        ({"min_width": 1.5}, "min_width is 1.5"),
        ({"optimizer": "rmsprop"}, "'rmsprop'.*use one of sgd, adam, adamw"),
        ({"optimizer": torch.optim.Adam}, "use one of sgd, adam, adamw"),
        ({"parametrization": "ntk"}, "'ntk': use one of mup, standard, hydro"),
        ({"pretrained": True}, "pretrained checkpoint"),
        ({"depth_scaling": 2}, "none was found: use depth_scaling=1"),
    ],
)
def test_a_request_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(hydro.HydroError, match=message):
        hydro.shrink(mlp(), X, **options)


@pytest.mark.parametrize(("width", "scaling"), [(8, 8), (4, 8), (24, 8)])
def test_a_width_below_the_floor_is_refused_with_the_layers_name(width: int, scaling: int) -> None:
    with pytest.raises(
        hydro.ShrinkError, match=rf"layer '0' \(Linear\) would go from width {width} to .*min_width"
    ):
        hydro.shrink(mlp(width), {"input": X}, scaling=scaling)


def test_the_floor_can_be_lowered_and_does_not_concern_scaling_one() -> None:
    assert hydro.shrink(mlp(8), X, scaling=8, min_width=1).get_parameter("0.weight").shape == (1, 6)
    assert hydro.shrink(mlp(2), X, scaling=1).get_parameter("0.weight").shape == (2, 6)


def test_a_model_without_a_hidden_width_is_refused() -> None:
    with pytest.raises(hydro.ShrinkError, match="no hidden width"):
        hydro.shrink(nn.Linear(6, 3), X)


def test_a_residual_from_the_input_ties_the_stream_to_the_data() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(6, 64), nn.Linear(64, 6)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(F.relu(self.up(x)))

    surrogate = hydro.shrink(Net(), X, scaling=8)
    assert surrogate.get_parameter("up.weight").shape == (8, 6)
    assert surrogate.get_parameter("down.weight").shape == (6, 8)


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        ("not a module", X, "model is a str"),
        (mlp(), None, "example_inputs is a NoneType"),
        (mlp(), 3, "example_inputs is a int"),
        (mlp(), (), "holds no tensor"),
        (mlp(), {"inputs": X}, "do not fit Sequential.forward"),
        (mlp(), (X, X), "do not fit Sequential.forward"),
        (mlp(), torch.randn(4, 7), r"fails on example_inputs in '0'.*4x7 and 6x64"),
        (mlp().double(), X, "input 'input' is torch.float32 and the model torch.float64"),
        (mlp().to("meta"), X, "input 'input' is on cpu and the model on meta"),
    ],
)
def test_inputs_that_do_not_fit_are_named(model: Any, inputs: Any, message: str) -> None:
    with pytest.raises(hydro.TraceError, match=message):
        hydro.shrink(model, inputs)


class Named(nn.Linear):
    name_or_path = "someone/checkpoint"


def test_a_named_checkpoint_is_refused_unless_its_weights_are_said_to_be_random() -> None:
    model = nn.Sequential(Named(6, 32), nn.Linear(32, 3))
    with pytest.raises(hydro.ShrinkError, match="training from scratch only.*pretrained=False"):
        hydro.shrink(model, X)
    assert hydro.shrink(model, X, pretrained=False).get_parameter("0.weight").shape == (4, 6)


class Wrap(nn.Module):
    def __init__(self, middle: nn.Module | None = None) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(6, 32), nn.Linear(32, 3)
        self.middle = middle if middle is not None else nn.Identity()

    def body(self, x: Tensor) -> Tensor:
        return self.middle(x)

    def forward(self, x: Tensor) -> Any:
        return self.out(self.body(self.inp(x)))


class InTrainingOnly(Wrap):
    def body(self, x: Tensor) -> Tensor:
        return x + 1 if self.training else x


class OtherConstant(Wrap):
    def body(self, x: Tensor) -> Tensor:
        return x * (2.0 if self.training else 1.0)


class Returns(Wrap):
    def forward(self, x: Tensor) -> Any:
        return {self.out(self.inp(x))}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (InTrainingOnly(), "training"),
        (OtherConstant(), "differs between training and evaluation"),
        (Returns(), "returns a set"),
    ],
)
def test_what_a_graph_cannot_hold_is_said(model: nn.Module, message: str) -> None:
    with pytest.raises(hydro.TraceError, match=message):
        hydro.trace(model, X)


class Fourier(Wrap):
    def body(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x).real


class Reshaped(Wrap):
    """24 entries cut as 6 x 4 and as 4 x 6: no narrower width serves both."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(6, 24), nn.Linear(24, 3)

    def body(self, x: Tensor) -> Tensor:
        return (x.view(-1, 6, 4) + 1).view(-1, 24) + (x.view(-1, 4, 6) + 1).view(-1, 24)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Wrap(nn.utils.parametrizations.weight_norm(nn.Linear(32, 32))), r"'middle'.*parametrization"),
        (Wrap(nn.Bilinear(32, 32, 32)), "fails on example_inputs in 'middle'"),
        (Fourier(), r"'fft_fft' \(fft_fft, in 'Fourier'\): no width rule"),
        (Reshaped(), r"factors|do not nest|is cut into"),
    ],
)
def test_an_operation_without_a_rule_is_named_with_its_place(model: nn.Module, message: str) -> None:
    with pytest.raises(hydro.HydroError, match=message):
        hydro.shrink(model, X, scaling=4)
