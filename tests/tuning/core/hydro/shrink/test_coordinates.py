"""The coordinate check tells width rules that work from those that do not."""

import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from tuning.core import hydro
from tuning.core.hydro.coordinates import _judged, _Run, default_loss
from tuning.core.hydro.groups import plain_optimizer
from tuning.core.hydro.surrogate import quietly_shrink
from workers.trainer.workloads.networks import ResidualDigits


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_the_mup_rules_keep_activations_flat(optimizer: str) -> None:
    report = hydro.coordinate_check(mlp(), torch.randn(32, 16), optimizer=optimizer, seeds=2)
    assert report.passed, report.summary()
    assert set(report.table["scaling"]) == {1.0, 2.0, 4.0, 8.0}
    assert set(report.slopes) == {"0", "2", "4"}


@pytest.mark.parametrize(
    ("scheme", "optimizer", "failing"),
    [("standard", "adam", "growing"), ("hydro", "sgd", "vanishing"), ("standard", "sgd", "growing")],
)
def test_other_rules_fail_it(scheme: str, optimizer: str, failing: str) -> None:
    report = hydro.coordinate_check(
        mlp(),
        torch.randn(32, 16),
        optimizer=optimizer,
        parametrization=scheme,  # type: ignore[arg-type]
        seeds=1,
    )
    assert not report.passed
    assert getattr(report, failing)
    assert "width" in report.summary()


def test_a_transformer_with_shrinking_heads_passes() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 64)
            self.layer = nn.TransformerEncoderLayer(64, 2, 128, 0.1, batch_first=True, norm_first=True)
            self.head = nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.layer(self.embed(x)).mean(1))

    torch.manual_seed(0)
    report = hydro.coordinate_check(Net(), torch.randint(0, 20, (16, 6)), (1, 2, 4))
    assert report.passed, report.summary()


def test_the_figure_has_a_line_per_layer_and_panel() -> None:
    report = hydro.coordinate_check(mlp(), torch.randn(8, 16), (2, 4), seeds=1, steps=2)
    assert len(report.figure.data) == 6
    assert "Coordinate check" in report.figure.layout.title.text


def test_one_width_is_no_comparison_and_random_states_stay() -> None:
    with pytest.raises(hydro.HydroError, match="at least two"):
        hydro.coordinate_check(mlp(), torch.randn(8, 16), (4, 4))
    model = mlp()
    state = torch.random.get_rng_state()
    hydro.coordinate_check(model, torch.ones(8, 16), (2, 4), seeds=1, steps=2)
    assert torch.equal(torch.random.get_rng_state(), state)


def runs(change: dict[float, list[float]]) -> dict[float, list[_Run]]:
    """Runs of one layer by scaling, a value per seed: how far its activation moves in each step."""
    return {
        scaling: [_Run([(t, "a", 1.0, t * value) for t in range(4)], []) for value in values]
        for scaling, values in change.items()
    }


@pytest.mark.parametrize(
    ("exponent", "growing", "vanishing"), [(0.0, False, False), (1.0, True, False), (-1.0, False, True)]
)
def test_slopes_are_exponents_of_width(exponent: float, growing: bool, vanishing: bool) -> None:
    report = _judged(runs({s: [s**-exponent] for s in (1.0, 2.0, 4.0)}), 0.4)
    assert report.slopes["a"] == pytest.approx(exponent)
    assert (report.growing == ["a"], report.vanishing == ["a"]) == (growing, vanishing)


def test_divergence_of_one_seed_never_passes() -> None:
    assert not _judged(runs({1.0: [1.0, math.nan, 1.0], 2.0: [1.0, 1.0, 1.0]}), 0.4).passed


def test_one_unlucky_seed_does_not_decide() -> None:
    assert _judged(runs({1.0: [1.0, 1.0, 1.0], 8.0: [1.0, 9.0, 1.0]}), 0.4).passed


def test_the_residual_network_with_batch_norm_passes_under_sgd() -> None:
    torch.manual_seed(0)
    images = torch.randn(16, 1, 14, 14)
    report = hydro.coordinate_check(ResidualDigits(32), images, (1, 4, 8), "sgd", min_width=4)
    assert report.passed, report.summary()
    assert {"norm", "block1.norm1", "block2.shortcut.1"} <= set(report.slopes)


def test_the_gain_of_a_batch_norm_moves_equally_far_at_every_width_under_sgd() -> None:
    """Its gradient falls like 1 / width and its learning rate grows like width."""
    torch.manual_seed(0)
    images, model = torch.randn(8, 1, 14, 14), ResidualDigits(64)

    def moved(scaling: float, seed: int) -> float:
        torch.manual_seed(seed)
        surrogate = quietly_shrink(model, images, scaling=scaling, optimizer="sgd").train()
        gain = dict(surrogate.named_parameters())["norm.weight"]
        stepper = plain_optimizer(surrogate, "sgd", 0.02)
        for _ in range(4):
            stepper.zero_grad()
            default_loss(surrogate(images)).backward()
            stepper.step()
        return float((gain - 1).abs().mean())

    wide, narrow = (sorted(moved(scaling, seed) for seed in range(5))[2] for scaling in (1, 8))
    assert narrow / wide == pytest.approx(1.0, abs=0.6), "a wrong rule is off by a factor of 8"


def test_a_check_loads_neither_pandas_nor_plotly_nor_scipy() -> None:
    code = """
import sys, torch
from forebay import hydro
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
report = hydro.coordinate_check(model, torch.randn(8, 4), (1, 2), seeds=1, steps=2)
hydro.transfer_report
sys.exit(" ".join(name for name in ("pandas", "plotly", "scipy") if name in sys.modules) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_outputs_own_loss_is_used() -> None:
    x = torch.ones(3, requires_grad=True)
    assert default_loss({"loss": (x * 2).sum(), "logits": x}) == 6.0
    assert default_loss((x, [x])).dim() == 0
