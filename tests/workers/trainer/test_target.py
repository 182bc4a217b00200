"""Targets: full width, saved with their configuration, resumable, cut without losing what there is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tuning.core.study import TargetCheckpointed, TargetReported
from workers.trainer.batches import load_data
from workers.trainer.orders import Setting, TargetOrder, Verdict
from workers.trainer.target import train_target
from workers.trainer.workloads.digits_mlp import DigitsMlp

CONFIG = {"lr": 0.1, "momentum": 0.9, "batch_size": 128, "gamma": 0.5}


def small() -> DigitsMlp:
    return DigitsMlp(width=32)


def order(folder: Path, epochs: int = 3, checkpoint: str | None = None, scaling: int = 4) -> TargetOrder:
    setting = Setting("digits-mlp", str(folder), data_seed=1, scaling=scaling, threads=1)
    return TargetOrder("t0", setting, 17, CONFIG, seed=3, epochs=epochs, checkpoint=checkpoint)


class StopAfter:
    """Stops a run after some batches."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def verdict(self, epoch: int) -> Any:
        raise AssertionError("targets are not judged")

    def pending(self) -> Any:
        return Verdict()

    def stopped(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_target_has_full_width_and_its_file_loads_into_the_users_model(tmp_path: Path) -> None:
    events: list[Any] = []
    ended = train_target(order(tmp_path), events.append, workload=small())
    assert ended.state == "completed"
    assert ended.model == str(tmp_path / "target-17.safetensors")
    reports = [event for event in events if isinstance(event, TargetReported)]
    assert [event.epoch for event in reports] == [1, 2, 3]
    assert ended.metric == reports[-1].metrics["accuracy"]
    weights = load_file(ended.model)
    assert weights.keys() == small().model(CONFIG).state_dict().keys()
    assert weights["2.weight"].shape == (32, 32)
    card = json.loads((tmp_path / "target-17.json").read_text())
    assert (card["workload"], card["config"], card["epochs"]) == ("digits-mlp", CONFIG, 3)


def by_hand(config: dict[str, Any], epochs: int) -> dict[str, torch.Tensor]:
    """Train the workload's own model in plain PyTorch."""
    workload = small()
    torch.manual_seed(3)
    model = workload.model(config)
    kind, arguments = workload.optimizer(config)
    optimizer = kind(model.parameters(), **arguments)
    schedule = workload.scheduler(config)
    scheduler = schedule[0](optimizer, **schedule[1])
    data = load_data(workload, config, "cpu")
    for epoch in range(1, epochs + 1):
        for inputs, targets in data.training_batches(1, epoch, config["batch_size"], fold_single=False):
            optimizer.zero_grad()
            workload.loss(model(inputs), targets).backward()
            optimizer.step()
        scheduler.step()
    return model.state_dict()


@pytest.mark.parametrize("parametrization", ["mup", "standard"])
def test_a_target_is_the_users_own_model_trained_as_by_hand(tmp_path: Path, parametrization: str) -> None:
    asked = order(tmp_path)
    asked = replace(asked, setting=replace(asked.setting, parametrization=parametrization))
    ended = train_target(asked, lambda event: None, workload=small())
    found = load_file(str(ended.model))
    for name, weight in by_hand(CONFIG, 3).items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-5)


def test_a_target_continues_from_its_checkpoint_to_the_same_model(tmp_path: Path) -> None:
    events: list[Any] = []
    whole = train_target(order(tmp_path / "a"), events.append, workload=small())
    saved = next(event for event in events if isinstance(event, TargetCheckpointed))
    again = train_target(order(tmp_path / "b", checkpoint=saved.path), events.append, workload=small())
    assert again.metric == whole.metric
    left, right = load_file(str(whole.model)), load_file(str(again.model))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_cut_target_keeps_the_model_of_its_last_finished_epoch(tmp_path: Path) -> None:
    events: list[Any] = []
    ended = train_target(order(tmp_path), events.append, StopAfter(17), small())
    assert ended.state == "cut"
    reports = [event for event in events if isinstance(event, TargetReported)]
    assert ended.metric == reports[-1].metrics["accuracy"]
    whole = train_target(order(tmp_path / "one", epochs=1), events.append, workload=small())
    left, right = load_file(str(ended.model)), load_file(str(whole.model))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_target_stopped_before_its_first_epoch_has_no_model(tmp_path: Path) -> None:
    ended = train_target(order(tmp_path), lambda event: None, StopAfter(2), small())
    assert (ended.state, ended.model, ended.metric) == ("cut", None, None)


def test_a_target_that_diverges_has_failed(tmp_path: Path) -> None:
    bad = TargetOrder("t0", order(tmp_path).setting, 1, {**CONFIG, "lr": 1e30}, 0, 2)
    ended = train_target(bad, lambda event: None, workload=small())
    assert (ended.state, ended.reason) == ("failed", "non-finite loss at epoch 1")


class PauseAtOnce(StopAfter):
    """Wants the device back after the first epoch."""

    def pending(self) -> Any:
        return Verdict(pause=True)


def test_a_target_pauses_at_the_end_of_an_epoch_and_loses_nothing(tmp_path: Path) -> None:
    events: list[Any] = []
    whole = train_target(order(tmp_path / "a"), events.append, workload=small())
    events.clear()
    paused = train_target(order(tmp_path / "b"), events.append, PauseAtOnce(1000), small())
    assert paused.state == "paused"
    saved = next(event for event in events if isinstance(event, TargetCheckpointed))
    assert saved.epoch == 1
    again = train_target(order(tmp_path / "b", checkpoint=saved.path), events.append, workload=small())
    left, right = load_file(str(whole.model)), load_file(str(again.model))
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("scaling", [2, 8])
def test_the_target_does_not_depend_on_how_narrow_its_surrogates_were(tmp_path: Path, scaling: int) -> None:
    first = train_target(order(tmp_path / "a", 1, scaling=4), lambda event: None, workload=small())
    second = train_target(order(tmp_path / "b", 1, scaling=scaling), lambda event: None, workload=small())
    assert first.metric == second.metric
