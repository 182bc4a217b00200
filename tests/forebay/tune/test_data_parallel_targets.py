"""Targets on several devices of this machine: as fast as promised, and a killed process costs an epoch."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import forebay
from forebay.local.devices import DeviceProcess
from forebay.local.driver import LocalDriver
from tuning.core.study import Study, TargetCheckpointed, TargetReported, widening
from tuning.core.study.width import StepCost

TARGET_EPOCHS = 30


class Slow(forebay.Workload):
    """Two rings of points, and a loss that takes its time for every sample."""

    space = {"lr": forebay.loguniform(1e-2, 1e-1), "batch_size": forebay.choice([32])}
    metric, mode, epochs = "accuracy", "max", 1

    def model(self, config: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))

    def data(self, config: Any) -> Any:
        generator = torch.Generator().manual_seed(0)
        angles = torch.rand(160, generator=generator) * 6.28
        labels = torch.arange(160) % 2
        points = torch.stack([angles.cos(), angles.sin()], 1) * (1 + labels[:, None])
        return (points[:96], labels[:96]), (points[96:], labels[96:])

    def loss(self, output: Any, target: Any) -> Any:
        sum(range(50_000 * len(target)))
        return super().loss(output, target)

    def metrics(self, output: Any, target: Any) -> Any:
        return {"accuracy": (output.argmax(-1) == target).float().mean()}

    def optimizer(self, config: Any) -> Any:
        return torch.optim.SGD, {"lr": config["lr"], "momentum": 0.9}


class Ear:
    """What the processes of a study said, and who they are."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.drivers: list[LocalDriver] = []

    def of(self, kind: type[Any], run: str) -> list[Any]:
        return [e for _, e in self.events if isinstance(e, kind) and e.run == run]


@pytest.fixture
def ear(monkeypatch: pytest.MonkeyPatch) -> Ear:
    ear, hear = Ear(), LocalDriver._hear

    def heard(driver: LocalDriver, device: DeviceProcess, message: Any) -> None:
        ear.events.append((device.name, message))
        if driver not in ear.drivers:
            ear.drivers.append(driver)
        hear(driver, device, message)

    monkeypatch.setattr(LocalDriver, "_hear", heard)
    monkeypatch.setattr(widening, "JOIN_S", 0.0)
    # What two devices bring is measured elsewhere; beside other tests a few steps say little of it.
    monkeypatch.setattr(widening, "step_cost", lambda state, shape: StepCost(0.1, 0.05, 1000))
    return ear


def tune(out: Path, workload: type[Slow] = Slow, **options: Any) -> forebay.TuneResult:
    fixed = {"trials": 2, "top_k": 1, "eager": 1, "scaling": 4, "devices": 2, "transfer_check": "off"}
    return forebay.tune(workload, out=out, **{"target_epochs": TARGET_EPOCHS, **fixed, **options})


def test_the_last_target_trains_on_both_devices_to_the_same_model(tmp_path: Path, ear: Ear) -> None:
    document = tune(tmp_path / "two").document
    [target] = document["targets"]
    assert target["state"] == "completed"
    assert {target["device"], *target["beside"]} == {"cpu:0", "cpu:1"}
    assert "times as fast, predicted" in target["note"]
    alone = tune(tmp_path / "one", devices=1).document
    assert alone["targets"][0]["beside"] == []
    left, right = (load_file(one["best"]["model"]) for one in (document, alone))
    for name in left:
        torch.testing.assert_close(left[name], right[name], atol=1e-5, rtol=0)


def test_a_killed_rank_costs_at_most_one_epoch(tmp_path: Path, ear: Ear) -> None:
    killed: list[tuple[str, int]] = []

    def watch(study: Study, now_s: float) -> None:
        for target in study.targets:
            if target.beside and target.epochs >= 3 and not killed:
                killed.append((str(target.run), target.epochs))
                os.kill(ear.drivers[0].devices[target.beside[0]].process.pid, signal.SIGKILL)

    result = tune(tmp_path, watcher=watch)
    [target] = result.study.targets
    [(run, _)] = killed
    assert result.document["state"] == "completed"
    assert sorted(target.metrics) == list(range(1, TARGET_EPOCHS + 1))
    last = ear.of(TargetReported, run)[-1].epoch
    assert ear.of(TargetCheckpointed, run)[-1].epoch >= last - 1
    runs = list(target.spent)
    assert ear.of(TargetReported, runs[runs.index(run) + 1])[0].epoch >= last
    assert target.attempts == 2


def test_the_error_of_any_rank_is_the_targets_reason(tmp_path: Path, ear: Ear) -> None:
    class Tires(Slow):
        """Raises at the tenth half batch; a profile sees fewer of them."""

        halves = 0

        def loss(self, output: Any, target: Any) -> Any:
            self.halves += len(target) == 16
            if self.halves == 10:
                raise ValueError("tired of halves")
            return super().loss(output, target)

    result = tune(tmp_path, workload=Tires)
    reasons = [target["reason"] for target in result.document["targets"]]
    assert "ValueError: tired of halves" in reasons
    assert not any("peer" in str(reason) or "cannot be reached" in str(reason) for reason in reasons)
