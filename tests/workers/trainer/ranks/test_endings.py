"""However one rank ends, the others end with it, and the reason is the first one's."""

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tuning.core.search import derive_seed
from tuning.core.study import TargetCheckpointed, TargetReported
from workers.trainer.checkpoints import read
from workers.trainer.orders import Verdict
from workers.trainer.workloads.digits_mlp import DigitsMlp

CONFIG = {"lr": 0.05, "momentum": 0.9, "batch_size": 128, "gamma": 0.5}


class Marked(DigitsMlp):
    """One sample, at a position of the first epoch's order, has a label that the loss refuses."""

    def __init__(self, position: int) -> None:
        super().__init__(width=32)
        self.position = position

    def data(self, config: Any) -> Any:
        (inputs, targets), validation = super().data(config)
        generator = torch.Generator().manual_seed(derive_seed(1, "epoch", 1))
        targets[torch.randperm(len(targets), generator=generator)[self.position]] = 11
        return (inputs, targets), validation

    def loss(self, output: Any, target: Any) -> Any:
        if target.max() > 9:
            raise ValueError("label 11 is out of range")
        return super().loss(output, target)


class BatchNormed(DigitsMlp):
    def model(self, config: Any) -> Any:
        return nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


class Dropped(DigitsMlp):
    def model(self, config: Any) -> Any:
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10))


class Parental:
    """Garbage of the parent, whose end in a child is the child's."""

    def __init__(self) -> None:
        self.cycle, self.pid = self, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.pid:
            os._exit(3)


def test_ranks_leave_what_they_inherit_alone(tmp_path: Path, team: Any, order: Any) -> None:
    crew = team(DigitsMlp(width=32))
    gc.disable()
    try:
        Parental()
        crew.begin(order(tmp_path, CONFIG))
    finally:
        gc.enable()
    assert [crew.last(rank).state for rank in (0, 1)] == ["completed", "completed"]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_error_of_one_rank_is_the_reason_of_all(tmp_path: Path, team: Any, order: Any, rank: int) -> None:
    third_batch, half = 3 * 128, 64
    crew = team(Marked(third_batch + rank * half + 5))
    crew.begin(order(tmp_path, CONFIG))
    for one in (0, 1):
        ended = crew.last(one)
        assert (ended.state, ended.reason) == ("failed", "ValueError: label 11 is out of range")


@pytest.mark.parametrize("victim", [0, 1])
def test_after_the_death_of_a_rank_the_others_end_and_say_so(
    tmp_path: Path, team: Any, order: Any, victim: int
) -> None:
    crew = team(DigitsMlp(width=256))
    crew.begin(order(tmp_path, CONFIG, epochs=10_000))
    crew.until(lambda: len(crew.events(TargetCheckpointed)) > 2)
    os.kill(crew.ranks[victim].process.pid, signal.SIGKILL)
    assert crew.last(victim) == ("dead", "its process was killed by SIGKILL")
    kind, _, reason = crew.last(1 - victim)
    assert kind == "parted"
    assert "cannot be reached" in reason
    reported = crew.events(TargetReported)[-1].epoch
    checkpoint = crew.events(TargetCheckpointed)[-1]
    assert reported - checkpoint.epoch <= 1
    assert read(checkpoint.path)["epoch"] == checkpoint.epoch


def test_a_stop_that_one_rank_hears_ends_all(tmp_path: Path, team: Any, order: Any) -> None:
    crew = team(DigitsMlp(width=64))
    crew.begin(order(tmp_path, CONFIG, epochs=10_000))
    crew.until(lambda: crew.events(TargetReported))
    crew.ranks[0].send(("stop", "t0"))
    assert [crew.last(rank).state for rank in (0, 1)] == ["cut", "cut"]
    assert crew.last(0).model is not None


def test_a_target_pauses_with_a_checkpoint_and_goes_on_with_fewer_ranks(
    tmp_path: Path, team: Any, order: Any
) -> None:
    asked = order(tmp_path, CONFIG, epochs=10_000)
    crew = team(DigitsMlp(width=64), ranks=3)
    crew.begin(asked)
    crew.until(lambda: crew.events(TargetReported))
    crew.ranks[0].send(("pending", "t0", Verdict(pause=True)))
    assert [crew.last(rank).state for rank in (0, 1, 2)] == ["paused"] * 3
    last = crew.events(TargetCheckpointed)[-1]
    assert last.epoch == crew.events(TargetReported)[-1].epoch

    fewer = team(DigitsMlp(width=64), ranks=2)
    fewer.begin(order(tmp_path, CONFIG, epochs=last.epoch + 2, checkpoint=last.path))
    assert fewer.last(0).state == "completed"
    assert [event.epoch for event in fewer.events(TargetReported)] == [last.epoch + 1, last.epoch + 2]


def test_all_ranks_notice_a_loss_that_is_not_finite(tmp_path: Path, team: Any, order: Any) -> None:
    crew = team(DigitsMlp(width=32))
    crew.begin(order(tmp_path, CONFIG | {"lr": 1e30}))
    assert {(crew.last(r).state, crew.last(r).reason) for r in (0, 1)} == {
        ("failed", "non-finite loss at epoch 1")
    }


def test_a_model_that_needs_the_whole_batch_is_refused(tmp_path: Path, team: Any, order: Any) -> None:
    crew = team(BatchNormed())
    crew.begin(order(tmp_path, CONFIG, scaling=1))
    kind, _, reason = crew.last(0)
    assert (kind, reason) == ("broken", "TuningError: BatchNorm1d needs the whole batch on one device")


def test_ranks_draw_noise_of_their_own_and_the_same_noise_again(
    tmp_path: Path, team: Any, order: Any
) -> None:
    losses = []
    for name in ("a", "b"):
        crew = team(Dropped())
        crew.begin(order(tmp_path / name, CONFIG, epochs=2))
        assert crew.last(0).state == "completed"
        losses.append([event.metrics["loss"] for event in crew.events(TargetReported)])
    assert losses[0] == losses[1]
