"""Containers: a trial's results do not depend on its company; failures stay alone; pauses lose nothing."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tuning.core.study import Checkpointed, ContainerEnded, Member, ModelSaved, Reported, TrialFailed
from tuning.core.workload import Workload
from workers.trainer.container import run_container
from workers.trainer.orders import ContainerOrder, Setting, Verdict

EPOCHS = 3


class Rings(Workload):
    """Two noisy rings: a small network with dropout and momentum, 66 training samples."""

    space = {"lr": [0.1]}
    metric, mode, epochs, batch_size = "accuracy", "max", EPOCHS, 16
    width = 32

    def model(self, config: Any) -> nn.Module:
        return nn.Sequential(
            nn.Linear(2, self.width),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(self.width, self.width),
            nn.ReLU(),
            nn.Linear(self.width, 2),
        )

    def data(self, config: Any) -> Any:
        generator = torch.Generator().manual_seed(0)
        angles = torch.rand(96, generator=generator) * 2 * math.pi
        labels = torch.arange(96) % 2
        points = torch.stack([angles.cos(), angles.sin()], 1) * (1 + labels[:, None])
        return (points[:66], labels[:66]), (points[66:], labels[66:])

    def metrics(self, output: Any, target: Any) -> Any:
        return {"accuracy": (output.argmax(-1) == target).float().mean()}

    def optimizer(self, config: Any) -> Any:
        return torch.optim.SGD, {"lr": config["lr"], "momentum": config.get("momentum", 0.9)}

    def scheduler(self, config: Any) -> Any:
        return torch.optim.lr_scheduler.StepLR, {"step_size": 1, "gamma": config.get("gamma", 0.5)}


class Told:
    """A control that gives prepared verdicts."""

    def __init__(self, verdicts: dict[int, Verdict] | None = None, stop_after: int | None = None) -> None:
        self.verdicts = verdicts or {}
        self.stop_after = stop_after
        self.asked: list[int] = []
        self.batches = 0

    def verdict(self, epoch: int) -> Verdict:
        self.asked.append(epoch)
        return self.verdicts.get(epoch, Verdict())

    def pending(self) -> Verdict:
        return Verdict()

    def stopped(self) -> bool:
        self.batches += 1
        return self.stop_after is not None and self.batches > self.stop_after


def setting(folder: Path, scaling: int) -> Setting:
    return Setting("rings", str(folder), data_seed=5, scaling=scaling, threads=1)


def member(trial: int, checkpoint: str | None = None, **config: float) -> Member:
    values = {"lr": 0.02 * (trial + 1), "momentum": 0.8 + 0.03 * trial, "gamma": 0.5 + 0.1 * trial}
    return Member(trial, {**values, **config}, seed=1000 + trial, checkpoint=checkpoint)


def run(
    folder: Path,
    members: Sequence[Member],
    *,
    scaling: int = 4,
    fused: bool = True,
    epochs: tuple[int, int] = (0, EPOCHS),
    rungs: tuple[int, ...] = (),
    control: Any = None,
    workload: Workload | None = None,
    name: str = "c0",
    keep_models: bool = False,
) -> tuple[ContainerEnded, list[Any]]:
    order = ContainerOrder(
        name, setting(folder, scaling), tuple(members), *epochs, rungs, fused=fused, keep_models=keep_models
    )
    events: list[Any] = []
    ended = run_container(order, events.append, control, workload or Rings())
    return ended, events


def curves(events: Sequence[Any]) -> dict[int, dict[int, list[float]]]:
    found: dict[int, dict[int, list[float]]] = {}
    for event in events:
        if isinstance(event, Reported):
            for trial, metrics in event.metrics.items():
                found.setdefault(trial, {})[event.epoch] = [metrics["loss"], metrics["accuracy"]]  # type: ignore[list-item]
    return found


def assert_same(left: dict[int, list[float]], right: dict[int, list[float]]) -> None:
    assert left.keys() == right.keys()
    for epoch in left:
        assert left[epoch] == pytest.approx(right[epoch], abs=2e-5)


@pytest.mark.parametrize("scaling", [1, 4])
def test_a_trial_trains_the_same_alone_in_pairs_and_in_a_crowd(tmp_path: Path, scaling: int) -> None:
    members = [member(trial) for trial in range(5)]
    alone = {}
    for one in members:
        alone |= curves(run(tmp_path, [one], scaling=scaling, fused=False)[1])
    crowd = curves(run(tmp_path, members, scaling=scaling)[1])
    pair = curves(run(tmp_path, [members[3], members[1]], scaling=scaling)[1])
    one_by_one = curves(run(tmp_path, members, scaling=scaling, fused=False)[1])
    for trial in range(5):
        assert_same(crowd[trial], alone[trial])
        assert_same(one_by_one[trial], alone[trial])
    assert_same(pair[3], alone[3])
    assert_same(pair[1], alone[1])


@pytest.mark.parametrize("fused", [True, False])
def test_stopped_trials_leave_and_the_others_go_on_unchanged(tmp_path: Path, fused: bool) -> None:
    members = [member(trial) for trial in range(4)]
    undisturbed = curves(run(tmp_path, members, fused=fused)[1])
    told = Told({1: Verdict((0, 2)), 2: Verdict((3,))})
    ended, events = run(tmp_path, members, fused=fused, rungs=(1, 2), control=told)
    assert told.asked == [1, 2]
    assert (ended.outcome, ended.epoch) == ("finished", EPOCHS)
    found = curves(events)
    assert {trial: len(epochs) for trial, epochs in found.items()} == {0: 1, 1: 3, 2: 1, 3: 2}
    assert_same(found[1], undisturbed[1])


@pytest.mark.parametrize("fused", [True, False])
def test_survivors_of_two_containers_continue_together_as_if_nothing_had_happened(
    tmp_path: Path, fused: bool
) -> None:
    members = [member(trial) for trial in range(5)]
    undisturbed = curves(run(tmp_path, members, fused=fused)[1])
    pause_two, pause_all = Told({1: Verdict((1,), pause=True)}), Told({1: Verdict(pause=True)})
    first, _ = run(tmp_path, members[:3], fused=fused, rungs=(1,), control=pause_two, name="a")
    second, _ = run(tmp_path, members[3:], fused=fused, rungs=(1,), control=pause_all, name="b")
    assert (first.outcome, second.outcome, first.epoch) == ("paused", "paused", 1)
    again = [member(4, second.path), member(0, first.path), member(2, first.path)]
    ended, events = run(tmp_path, again, fused=fused, epochs=(1, EPOCHS), name="c")
    assert ended.outcome == "finished"
    found = curves(events)
    for trial in (0, 2, 4):
        assert_same(found[trial], {e: v for e, v in undisturbed[trial].items() if e > 1})


def test_a_lost_container_continues_from_its_last_checkpoint(tmp_path: Path) -> None:
    members = [member(trial) for trial in range(3)]
    _, events = run(tmp_path, members)
    saved = next(event for event in events if isinstance(event, Checkpointed))
    again = [member(trial, saved.path) for trial in (1, 2)]
    _, later = run(tmp_path, again, epochs=(saved.epoch, EPOCHS), name="again")
    for trial in (1, 2):
        assert_same(curves(later)[trial], {e: v for e, v in curves(events)[trial].items() if e > saved.epoch})


@pytest.mark.parametrize("fused", [True, False])
def test_a_trial_that_diverges_fails_alone_with_its_reason(tmp_path: Path, fused: bool) -> None:
    healthy = [member(0), member(2)]
    broken = member(1, lr=1e30)
    _, events = run(tmp_path, [healthy[0], broken, healthy[1]], fused=fused)
    failures = [event for event in events if isinstance(event, TrialFailed)]
    assert [(f.trial, f.reason) for f in failures] == [(1, "non-finite loss at epoch 1")]
    undisturbed = curves(run(tmp_path, healthy, fused=fused)[1])
    found = curves(events)
    assert found.keys() == {0, 2}
    assert_same(found[2], undisturbed[2])


def test_trials_that_cannot_be_fused_are_trained_one_by_one_and_the_reason_is_said(tmp_path: Path) -> None:
    class Odd(Rings):
        def optimizer(self, config: Any) -> Any:
            return torch.optim.RMSprop, {"lr": config["lr"] / 100}

    ended, events = run(tmp_path, [member(0), member(1)], scaling=1, workload=Odd())
    assert ended.outcome == "finished"
    assert ended.note is not None
    assert "2 trials were trained one by one" in ended.note
    assert "RMSprop" in ended.note
    assert curves(events).keys() == {0, 1}


def test_a_configuration_that_raises_fails_alone(tmp_path: Path) -> None:
    class Picky(Rings):
        def optimizer(self, config: Any) -> Any:
            if config["lr"] > 0.05:
                raise ValueError("lr is too large for me")
            return super().optimizer(config)

    _, events = run(tmp_path, [member(0), member(1), member(2)], workload=Picky())
    failures = [event for event in events if isinstance(event, TrialFailed)]
    assert [(f.trial, f.reason) for f in failures] == [(2, "ValueError: lr is too large for me")]
    assert curves(events).keys() == {0, 1}


def test_a_metric_that_is_never_reported_names_what_was_seen(tmp_path: Path) -> None:
    class Other(Rings):
        def metrics(self, output: Any, target: Any) -> Any:
            return {"acc": (output.argmax(-1) == target).float().mean()}

    ended, events = run(tmp_path, [member(0), member(1)], workload=Other())
    assert ended.outcome == "stopped"
    reasons = {event.reason for event in events if isinstance(event, TrialFailed)}
    assert reasons == {"metric `accuracy` never reported; saw: acc, loss"}


def test_a_stop_ends_the_container_between_two_batches(tmp_path: Path) -> None:
    ended, events = run(tmp_path, [member(0), member(1)], control=Told(stop_after=7))
    assert (ended.outcome, ended.epoch) == ("stopped", 1)
    assert [event.epoch for event in events if isinstance(event, Reported)] == [1]


def test_device_seconds_are_shared_and_never_shrink(tmp_path: Path) -> None:
    _, events = run(tmp_path, [member(0), member(1)])
    spent = [event.device_seconds for event in events if isinstance(event, Reported)]
    assert all(row[0] == row[1] > 0 for row in spent)
    assert [row[0] for row in spent] == sorted(row[0] for row in spent)


def test_full_models_are_kept_with_their_ordinary_keys(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    _, events = run(tmp_path, [member(0), member(1)], scaling=1, keep_models=True)
    saved = [event for event in events if isinstance(event, ModelSaved)]
    assert [event.trial for event in saved] == [0, 1]
    model = Rings().model({})
    model.load_state_dict(load_file(saved[0].path))
    inputs, targets = Rings().data({})[1]
    accuracy = (model.eval()(inputs).argmax(-1) == targets).float().mean()
    assert float(accuracy) == pytest.approx(curves(events)[0][EPOCHS][1])
