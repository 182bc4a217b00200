"""What a profile says of steps, by a clock that counts samples."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import forebay
from workers.trainer import profiling
from workers.trainer.orders import ProfileOrder, Setting
from workers.trainer.profiling import run_profile

WIDTH, BATCH = 32, 16


class Counted(forebay.Workload):
    """Trains on noise, and notes how many samples its loss has seen."""

    space = {"lr": forebay.loguniform(1e-2, 1e-1), "batch_size": forebay.choice([BATCH])}
    metric, mode, epochs = "loss", "min", 1
    seen = 0

    def model(self, config: Any) -> nn.Module:
        return nn.Sequential(
            nn.Linear(2, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2)
        )

    def data(self, config: Any) -> Any:
        points, labels = torch.randn(64, 2), torch.arange(64) % 2
        return (points, labels), (points, labels)

    def loss(self, output: Any, target: Any) -> Any:
        type(self).seen += len(target)
        return super().loss(output, target)

    def optimizer(self, config: Any) -> Any:
        return torch.optim.SGD, {"lr": config["lr"]}


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ProfileOrder:
    monkeypatch.setattr(profiling, "step_clock", lambda device: lambda: float(Counted.seen))
    setting = Setting("counted", str(tmp_path), 0, scaling=4, threads=1)
    return ProfileOrder("p1", setting, {"s": {"lr": 0.05, "batch_size": BATCH}}, {"s": 8}, 5, full_width=True)


def test_the_full_model_is_measured_on_a_whole_batch_and_on_half_of_one(order: ProfileOrder) -> None:
    found = run_profile(order, Counted())
    weights = 2 * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH + WIDTH * 2 + 2
    assert found.target_step_s == {"s": BATCH}
    assert found.target_half_s == {"s": BATCH / 2}
    assert found.target_bytes == {"s": 4 * weights}


def test_surrogates_are_measured_alone_and_fused(order: ProfileOrder) -> None:
    [profile] = run_profile(order, Counted()).profiles
    assert profile["fusable"]
    assert profile["step_s"]["1"] == BATCH
    assert {"1", "2"} <= set(profile["step_s"])
    assert profile["steps_per_epoch"] == 64 / BATCH
