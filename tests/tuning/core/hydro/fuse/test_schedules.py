"""Schedules: each trial's learning rate is, to the bit, what PyTorch computes for it alone."""

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as L

from tuning.core import hydro


def optimizer_of(count=2, kind=torch.optim.SGD, **settings):
    fused = hydro.fuse([nn.Linear(2, 1) for _ in range(count)], torch.randn(3, 2))
    return hydro.optimizer(kind, fused, **{"lr": [0.1, 0.02][:count], **settings})


def half(epoch):
    return 0.5**epoch


def tenth(epoch):
    return 0.1**epoch


SCHEDULES = {
    "StepLR": (L.StepLR, {"step_size": [2, 3], "gamma": [0.5, 0.1]}),
    "MultiStepLR for all": (L.MultiStepLR, {"milestones": [2, 4], "gamma": 0.5}),
    "MultiStepLR each": (L.MultiStepLR, {"milestones": [[2], [1, 3]], "gamma": [0.5, 0.1]}),
    "ExponentialLR": (L.ExponentialLR, {"gamma": [0.9, 0.8]}),
    "CosineAnnealingLR": (L.CosineAnnealingLR, {"T_max": [5, 8], "eta_min": 1e-3}),
    "CosineAnnealingWarmRestarts": (L.CosineAnnealingWarmRestarts, {"T_0": [2, 3], "T_mult": 2}),
    "LambdaLR": (L.LambdaLR, {"lr_lambda": [half, tenth]}),
    "LinearLR": (L.LinearLR, {"start_factor": [0.5, 0.1], "total_iters": 4}),
    "PolynomialLR": (L.PolynomialLR, {"total_iters": [4, 6], "power": 2.0}),
    "ConstantLR": (L.ConstantLR, {"factor": 0.5, "total_iters": [2, 3]}),
    "OneCycleLR": (L.OneCycleLR, {"max_lr": [0.5, 0.2], "total_steps": 10}),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_those_of_pytorch(name):
    kind, settings = SCHEDULES[name]
    optimizer = optimizer_of(momentum=0.9)
    schedule = hydro.scheduler(kind, optimizer, **settings)
    for index, lr in enumerate([0.1, 0.02]):
        shared = name == "MultiStepLR for all"
        own = {k: v[index] if isinstance(v, list) and not shared else v for k, v in settings.items()}
        reference = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr, momentum=0.9)
        expected = kind(reference, **own)
        seen = [reference.param_groups[0]["lr"]]
        for _ in range(8):
            reference.step()
            expected.step()
            seen.append(reference.param_groups[0]["lr"])
        fresh = optimizer_of(momentum=0.9)
        again = hydro.scheduler(kind, fresh, **settings)
        found = [again.get_last_lr()[index]]
        for _ in range(8):
            again.step()
            found.append(again.get_last_lr()[index])
        assert found == seen
        assert fresh.values("momentum")[index] == reference.param_groups[0]["momentum"]
    assert optimizer.schedulers == [schedule]


def test_a_changed_rate_reaches_the_next_step():
    optimizer = optimizer_of(lr=[1.0, 1.0])
    hydro.scheduler(L.ExponentialLR, optimizer, gamma=[0.5, 0.1])
    optimizer.schedulers[0].step()
    weight = optimizer.module.get_parameter("weight")
    before = weight.detach().clone()
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    torch.testing.assert_close((before - weight)[:, 0, 0], torch.tensor([0.5, 0.1]))


def test_sequential_schedules_warm_up_and_decay_per_trial():
    optimizer = optimizer_of()
    warm = hydro.scheduler(L.LinearLR, optimizer, start_factor=[0.1, 0.5], total_iters=3)
    decay = hydro.scheduler(L.ExponentialLR, optimizer, gamma=[0.9, 0.5])
    whole = hydro.scheduler(L.SequentialLR, optimizer, schedulers=[warm, decay], milestones=[3])
    assert optimizer.schedulers == [whole]
    found = []
    for _ in range(6):
        whole.step()
        found.append(whole.get_last_lr())
    for index, (lr, start, gamma) in enumerate([(0.1, 0.1, 0.9), (0.02, 0.5, 0.5)]):
        reference = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)
        parts = [L.LinearLR(reference, start, total_iters=3), L.ExponentialLR(reference, gamma)]
        expected = L.SequentialLR(reference, parts, [3])
        for row in found:
            reference.step()
            expected.step()
            assert row[index] == reference.param_groups[0]["lr"]


def test_plateaus_are_judged_per_trial():
    optimizer = optimizer_of()
    schedule = hydro.scheduler(L.ReduceLROnPlateau, optimizer, patience=0, factor=0.1)
    schedule.step([1.0, 1.0])
    schedule.step([2.0, 0.5])
    assert schedule.get_last_lr() == pytest.approx([0.01, 0.02])
    with pytest.raises(hydro.FuseError, match="one value per trial"):
        schedule.step()


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (L.StepLR, {"step_size": [1, 2, 3]}, "step_size has 3 values for 2 trials"),
        (L.StepLR, {"step_size": 1, "speed": 2}, "no setting 'speed'"),
        (L.OneCycleLR, {"max_lr": 0.1}, "OneCycleLR of trial 0"),
        (L.CyclicLR, {"base_lr": 0.1, "max_lr": 0.2}, "CyclicLR is not supported"),
        (L.SequentialLR, {"milestones": [1]}, "needs schedulers"),
    ],
)
def test_bad_schedules_are_named(kind, settings, said):
    with pytest.raises(hydro.FuseError, match=said):
        hydro.scheduler(kind, optimizer_of(), **settings)


def test_a_pytorch_optimizer_is_refused():
    with pytest.raises(hydro.FuseError, match="hydro.optimizer"):
        hydro.scheduler(L.StepLR, torch.optim.SGD(nn.Linear(1, 1).parameters()), step_size=1)
