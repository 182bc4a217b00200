"""Containers on disk: plain tensors, cut and joined by trial, going on to the bit."""

import io
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from tuning.core import hydro


def net():
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def batches(count):
    return [(torch.randn(6, 3), torch.randint(0, 2, (6,))) for _ in range(count)]


SCHEDULES = {
    "step": (lr_scheduler.StepLR, {"step_size": 2, "gamma": 0.5}),
    "milestones": (lr_scheduler.MultiStepLR, {"milestones": [1, 4], "gamma": 0.5}),
    "cycle": (lr_scheduler.OneCycleLR, {"max_lr": 0.1, "total_steps": 20}),
    "restarts": (lr_scheduler.CosineAnnealingWarmRestarts, {"T_0": 3}),
}


def container(count, schedule="step", kind=torch.optim.AdamW):
    fused = hydro.fuse([net() for _ in range(count)], torch.randn(6, 3), seeds=list(range(count))).train()
    optimizer = hydro.optimizer(kind, fused, lr=[0.01 * (index + 1) for index in range(count)])
    settings = SCHEDULES[schedule]
    hydro.scheduler(settings[0], optimizer, **settings[1])
    return fused, optimizer


def through_a_file(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_restored_container_goes_on_to_the_bit(schedule, kind, train_fused):
    fused, optimizer = container(2, schedule, kind)
    train_fused(fused, optimizer, batches(5))
    state = through_a_file(hydro.container_state(fused, optimizer))
    later = batches(4)
    train_fused(fused, optimizer, later)
    other, other_optimizer = container(2, schedule, kind)
    hydro.load_container_state(other, other_optimizer, state)
    train_fused(other, other_optimizer, later)
    for name, tensor in fused.tensors().items():
        assert torch.equal(other.tensors()[name], tensor), name
    assert other_optimizer.values("lr") == optimizer.values("lr")
    assert other.seeds == fused.seeds


def test_saved_trials_can_be_cut_and_joined_without_the_model(train_fused):
    first, second = container(3), container(2)
    train_fused(*first, batches(3))
    train_fused(*second, batches(4))
    states = [through_a_file(hydro.container_state(*each)) for each in (first, second)]
    joined = hydro.join_states([hydro.select_trials(states[0], [2, 0]), hydro.select_trials(states[1], [1])])
    restored = container(3)
    hydro.load_container_state(*restored, joined)
    later = batches(3)
    train_fused(*restored, later)
    merged = hydro.merge([hydro.defuse(*first, [2, 0]), hydro.defuse(*second, [1])])
    train_fused(*merged, later)
    for name, tensor in merged[0].tensors().items():
        assert torch.equal(restored[0].tensors()[name], tensor), name
    assert restored[1].values("lr") == merged[1].values("lr")


def test_a_state_that_does_not_fit_is_refused():
    fused, optimizer = container(2)
    state = hydro.container_state(fused, optimizer)
    for broken, said in (
        ({**state, "format": 7}, "format"),
        (hydro.select_trials(state, [0]), "1 trials"),
        ({**state, "tensors": {"x": torch.zeros(2)}}, "only in the"),
        (hydro.container_state(fused), "without an optimizer"),
        ({**state, "schedules": [[], []]}, "schedulers"),
    ):
        with pytest.raises(hydro.FuseError, match=said):
            hydro.load_container_state(fused, optimizer, broken)
    with pytest.raises(hydro.FuseError, match="saved ones"):
        hydro.select_trials(state, [5])
    with pytest.raises(hydro.FuseError, match="no state"):
        hydro.join_states([])


def test_no_public_name_is_hidden_by_a_file_of_the_same_name():
    """Importing a file sets its name in the package; a function of that name would become the file."""
    files = {entry.stem for entry in Path(hydro.__file__).parent.iterdir()}
    assert files & set(hydro.__all__) == set()
