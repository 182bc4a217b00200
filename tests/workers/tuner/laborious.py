"""A workload of which every sample takes its time, so that a second device is worth having."""

from typing import Any

import torch
from torch import nn

from tuning.core.space import choice, loguniform
from tuning.core.workload import Workload

SAMPLES, BATCH = 96, 32


class Laborious(Workload):
    """Two rings of points."""

    space = {"lr": loguniform(1e-2, 1e-1), "batch_size": choice([BATCH])}
    metric, mode, epochs = "accuracy", "max", 1

    def model(self, config: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))

    def data(self, config: Any) -> Any:
        generator = torch.Generator().manual_seed(0)
        angles = torch.rand(SAMPLES + 32, generator=generator) * 6.28
        labels = torch.arange(SAMPLES + 32) % 2
        points = torch.stack([angles.cos(), angles.sin()], 1) * (1 + labels[:, None])
        return (points[:SAMPLES], labels[:SAMPLES]), (points[SAMPLES:], labels[SAMPLES:])

    def loss(self, output: Any, target: Any) -> Any:
        sum(range(50_000 * len(target)))
        return super().loss(output, target)

    def metrics(self, output: Any, target: Any) -> dict[str, Any]:
        return {"accuracy": (output.argmax(-1) == target).float().mean()}

    def optimizer(self, config: Any) -> Any:
        return torch.optim.SGD, {"lr": config["lr"], "momentum": 0.9}
