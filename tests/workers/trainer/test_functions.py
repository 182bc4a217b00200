"""Training functions: one call for many trials, and nobody's result depends on it."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import forebay
from tuning.core.study import Member, Reported, TrialFailed
from workers.trainer.container import run_container
from workers.trainer.orders import ContainerOrder, Setting, TargetOrder, Verdict
from workers.trainer.per_trial import PerTrial, joint_config
from workers.trainer.target import train_target

EPOCHS = 3
SPACE = {"lr": forebay.loguniform(1e-3, 1.0), "gamma": forebay.uniform(0.1, 1.0)}


def rings(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    angles = torch.rand(count, generator=generator) * 2 * math.pi
    labels = torch.arange(count) % 2
    return TensorDataset(torch.stack([angles.cos(), angles.sin()], 1) * (1 + labels[:, None]), labels)


@forebay.workload(space=SPACE, metric="accuracy", mode="max", epochs=EPOCHS)
def train(config: dict[str, Any]) -> None:
    """Two rings."""
    hidden = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU())
    model = forebay.prepare_model(nn.Sequential(*hidden, nn.Linear(32, 2)))
    loader = forebay.prepare_data_loader(DataLoader(rings(64), batch_size=16, shuffle=True))
    optimizer = forebay.prepare_optimizer(torch.optim.SGD, model, lr=0.5 * config["lr"], momentum=0.9)
    scheduler = forebay.prepare_scheduler(
        torch.optim.lr_scheduler.StepLR, optimizer, step_size=1, gamma=config["gamma"]
    )
    inputs, targets = rings(40).tensors
    for _ in range(100):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            forebay.backward(forebay.losses(nn.functional.cross_entropy, model(x), y))
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            correct = model(inputs).argmax(-1) == targets
        forebay.report({"accuracy": correct.float().mean(-1)})


class Told:
    """A control with prepared verdicts."""

    def __init__(self, verdicts: dict[int, Verdict] | None = None) -> None:
        self.verdicts = verdicts or {}

    def verdict(self, epoch: int) -> Verdict:
        return self.verdicts.get(epoch, Verdict())

    def pending(self) -> Verdict:
        return Verdict()

    def stopped(self) -> bool:
        return False


def run(
    folder: Path, trials: list[int], scaling: int, workload: Any = train, **changes: Any
) -> tuple[Any, list[Any]]:
    members = tuple(Member(t, {"lr": 0.1 * (t + 1), "gamma": 0.5 + 0.1 * t}, 100 + t) for t in trials)
    setting = Setting("rings", str(folder), data_seed=4, scaling=scaling, threads=1)
    values: dict[str, Any] = {"rungs": (), "fused": len(trials) > 1, "control": Told(), **changes}
    control = values.pop("control")
    order = ContainerOrder("c0", setting, members, 0, EPOCHS, **values)
    events: list[Any] = []
    return run_container(order, events.append, control, workload), events


def curves(events: list[Any]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for event in events:
        if isinstance(event, Reported):
            for trial, metrics in event.metrics.items():
                found.setdefault(trial, []).append(metrics["accuracy"])
    return found


@pytest.mark.parametrize("scaling", [1, 4])
def test_a_function_trains_many_trials_as_it_trains_each_alone(tmp_path: Path, scaling: int) -> None:
    ended, events = run(tmp_path, [0, 1, 2], scaling)
    assert (ended.outcome, ended.note) == ("finished", None)
    together = curves(events)
    for trial in range(3):
        assert together[trial] == curves(run(tmp_path, [trial], scaling)[1])[trial]
        assert len(together[trial]) == EPOCHS


def test_stopped_trials_leave_the_function_and_the_others_go_on(tmp_path: Path) -> None:
    undisturbed = curves(run(tmp_path, [0, 1, 2], 4)[1])
    _, events = run(tmp_path, [0, 1, 2], 4, rungs=(1,), control=Told({1: Verdict((0, 2))}))
    assert curves(events) == {0: undisturbed[0][:1], 1: undisturbed[1], 2: undisturbed[2][:1]}


def test_a_function_that_cannot_take_several_trials_runs_once_for_each(tmp_path: Path) -> None:
    @forebay.workload(space=SPACE, metric="accuracy", epochs=EPOCHS)
    def picky(config: dict[str, Any]) -> None:
        assert isinstance(config["lr"], float)
        if config["lr"] > 0.25:
            raise ValueError("too large")
        train(config)

    ended, events = run(tmp_path, [0, 1, 2], 4, workload=picky)
    assert ended.note is not None
    assert ended.note.startswith("3 trials were trained one by one: AssertionError")
    assert curves(events) == {t: curves(run(tmp_path, [t], 4)[1])[t] for t in (0, 1)}
    failures = [(e.trial, e.reason) for e in events if isinstance(e, TrialFailed)]
    assert failures == [(2, "ValueError: too large")]


def test_a_function_trains_a_target_and_its_model_is_saved(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    setting = Setting("rings", str(tmp_path), data_seed=4, scaling=4, threads=1)
    order = TargetOrder("t0", setting, 3, {"lr": 0.2, "gamma": 0.9}, seed=1, epochs=2)
    ended = train_target(order, lambda event: None, workload=train)
    assert ended.state == "completed"
    assert load_file(str(ended.model))["3.weight"].shape == (32, 32)


def test_a_target_starts_with_the_functions_own_model(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    found = []
    for scaling in (4, 1):
        setting = Setting("rings", str(tmp_path / str(scaling)), data_seed=4, scaling=scaling, threads=1)
        order = TargetOrder("t0", setting, 3, {"lr": 0.2, "gamma": 0.9}, seed=1, epochs=2)
        found.append(load_file(str(train_target(order, lambda event: None, workload=train).model)))
    for name, weight in found[0].items():
        torch.testing.assert_close(weight, found[1][name], rtol=1e-4, atol=1e-5)


def test_a_function_also_runs_by_hand() -> None:
    model = forebay.prepare_model(nn.Linear(2, 2))
    optimizer = forebay.prepare_optimizer(torch.optim.SGD, model, lr=0.1)
    x, y = rings(8).tensors
    losses = forebay.losses(nn.functional.cross_entropy, model(x), y)
    assert losses.shape == (1,)
    forebay.backward(losses)
    forebay.clip_grad_norm_(model, 1e-3)
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)
    optimizer.step()
    forebay.report({"accuracy": 0.5})


def test_hyperparameters_of_several_trials_take_part_in_arithmetic() -> None:
    config = joint_config([{"lr": 0.1, "b": 32}, {"lr": 0.2, "b": 32}])
    assert config["b"] == 32
    lr = config["lr"]
    assert isinstance(lr, PerTrial)
    assert 2 * lr + 1 == pytest.approx([1.2, 1.4])
    assert lr * lr / 0.1 == pytest.approx([0.1, 0.4])
    assert 1 - lr == pytest.approx([0.9, 0.8])
    assert -(lr**2) == pytest.approx([-0.01, -0.04])
