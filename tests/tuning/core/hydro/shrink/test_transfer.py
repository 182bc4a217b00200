"""The transfer report: two checks, one verdict, a table and charts."""

import math

import pytest
import torch
from torch import Tensor, nn

from tuning.core import hydro


def task() -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    torch.manual_seed(0)
    teacher = torch.randn(8, 3)
    inputs = [torch.randn(32, 8) for _ in range(4)]
    model = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 3))
    return model, [(x, (x @ teacher).argmax(1)) for x in inputs]


def test_rankings_agree_at_two_widths_under_the_rules() -> None:
    model, batches = task()
    report = hydro.transfer_report(
        model, batches, nn.functional.cross_entropy, "adam", scalings=(8, 4), steps=30,
        coordinate_scalings=(2, 4), learning_rates=[2.0**-k for k in (13, 11, 9, 7)],
    )  # fmt: skip
    assert report.passed, report.summary()
    assert report.correlation >= 0.8
    assert set(report.table.columns) == {"lr", "scaling", "loss"}
    assert len(report.table) == 8
    assert set(report.best) == {8.0, 4.0}
    assert len(report.figure.data) == 2
    assert "Spearman" in report.summary()


def test_a_rate_that_diverges_ranks_last() -> None:
    model, batches = task()
    report = hydro.transfer_report(
        model, batches, lambda output, _: output.square().sum() + output.sum(), "sgd",
        scalings=(8, 4), steps=20, coordinate_scalings=(2, 4), learning_rates=[1e-3, 1e6],
    )  # fmt: skip
    assert report.table.loc[report.table["lr"] == 1e6, "loss"].map(math.isinf).all()
    assert set(report.best.values()) == {1e-3}


@pytest.mark.parametrize(
    ("options", "message"),
    [({"scalings": (4, 4)}, "two different scalings"), ({"batches": []}, "at least one batch")],
)
def test_a_report_without_a_comparison_is_refused(options: dict, message: str) -> None:
    model, batches = task()
    with pytest.raises(hydro.HydroError, match=message):
        hydro.transfer_report(model, options.pop("batches", batches), nn.functional.cross_entropy, **options)
