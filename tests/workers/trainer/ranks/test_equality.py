"""Several ranks together make the steps that one device makes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tuning.core.study import TargetCheckpointed, TargetReported
from tuning.core.workload import Workload
from workers.trainer.target import train_target
from workers.trainer.workloads.digits_mlp import DigitsMlp
from workers.trainer.workloads.pydoc_gpt import PydocGpt


class Partly(DigitsMlp):
    """Has a layer that the loss never reaches, and clips."""

    clip_norm = 0.05

    def model(self, config: Any) -> nn.Module:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.used = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
                self.unused = nn.Linear(4, 4)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.used(x)

        return Net()

    def optimizer(self, config: Any) -> Any:
        return torch.optim.AdamW, {"lr": config["lr"], "weight_decay": 0.1}


class Short(DigitsMlp):
    """Training data of which the last batch is a single sample."""

    def data(self, config: Any) -> Any:
        (inputs, targets), validation = super().data(config)
        return (inputs[:65], targets[:65]), validation


class Double(DigitsMlp):
    """In double precision: in single, a rounding that flips one ReLU is seen in the weights for good."""

    def model(self, config: Any) -> nn.Module:
        return super().model(config).double()

    def data(self, config: Any) -> Any:
        return tuple((inputs.double(), targets) for inputs, targets in super().data(config))


MLP = {"lr": 0.1, "momentum": 0.9, "batch_size": 128, "gamma": 0.5}
GPT = {"lr": 3e-3, "beta1": 0.9, "batch_size": 16, "gamma": 0.5}
CASES = {
    "MLP": (DigitsMlp(width=32), MLP, 2),
    "transformer": (PydocGpt(width=32), GPT, 2),
    "uneven shares": (Double(width=32), MLP | {"batch_size": 33}, 3),
    "a last batch of one sample": (Short(width=32), MLP | {"batch_size": 32}, 3),
    "clipped, a layer unused": (Partly(), MLP | {"lr": 0.01}, 2),
}


@pytest.mark.parametrize(("workload", "config", "ranks"), CASES.values(), ids=CASES)
def test_ranks_together_train_what_one_device_trains(
    tmp_path: Path, team: Any, order: Any, workload: Workload, config: dict[str, Any], ranks: int
) -> None:
    asked = order(tmp_path / "together", config)
    crew = team(workload, ranks)
    crew.begin(asked)
    together = crew.last(0)
    assert together.state == "completed", together
    reports: list[Any] = []
    alone = train_target(order(tmp_path / "alone", config), reports.append, workload=workload)

    left, right = load_file(str(together.model)), load_file(str(alone.model))
    assert left.keys() == right.keys()
    for name in left:
        if name.endswith("key.bias"):  # its gradient is rounding only, which Adam scales to whole steps
            continue
        torch.testing.assert_close(left[name], right[name], atol=1e-5, rtol=0)
    expected = [event.metrics["loss"] for event in reports if isinstance(event, TargetReported)]
    found = [event.metrics["loss"] for event in crew.events(TargetReported)]
    assert found == pytest.approx(expected, abs=1e-5)
    assert [event.epoch for event in crew.events(TargetCheckpointed)] == [1, 2]
    assert all(crew.last(rank).state == "completed" for rank in range(1, ranks))
    assert len(list((tmp_path / "together").glob("*.safetensors"))) == 1
