"""Trial optimizers against PyTorch's own, given the same gradients, on fused and on plain modules."""

import copy

import pytest
import torch
from torch import nn

from tuning.core import hydro

SETTINGS = {
    "sgd": (torch.optim.SGD, {"lr": [0.1, 0.03]}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": [0.9, 0.0], "weight_decay": [0.0, 0.1]}),
    "dampening": (torch.optim.SGD, {"lr": 0.1, "momentum": [0.9, 0.0], "dampening": [0.3, 0.5]}),
    "nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.8, "nesterov": [True, False]}),
    "maximize": (torch.optim.SGD, {"lr": 0.1, "maximize": [True, False], "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": [0.01, 0.1], "betas": [(0.9, 0.99), (0.5, 0.9)], "eps": [1e-8, 1e-3]}),
    "adam decay": (torch.optim.Adam, {"weight_decay": [0.1, 0.0], "amsgrad": [True, False]}),
    "adam maximize": (torch.optim.Adam, {"lr": 0.01, "maximize": [False, True]}),
    "adamw": (torch.optim.AdamW, {"lr": [0.01, 0.0], "weight_decay": [0.1, 0.5], "amsgrad": True}),
}


def gradients(model, count):
    return [[torch.randn_like(p) for p in model.parameters()] for _ in range(count)]


def net():
    return nn.Sequential(nn.Linear(5, 4), nn.Conv1d(3, 2, 1), nn.PReLU(), nn.Linear(4, 2, bias=False))


def own(settings, index):
    return {name: value[index] if isinstance(value, list) else value for name, value in settings.items()}


def stepped(kind, model, grads, **settings):
    model = copy.deepcopy(model)
    optimizer = kind(model.parameters(), **settings)
    for step in grads:
        for parameter, grad in zip(model.parameters(), step, strict=True):
            parameter.grad = grad.clone()
        optimizer.step()
    return model


@pytest.mark.parametrize("name", SETTINGS)
def test_steps_are_those_of_pytorch_for_the_same_gradients(name):
    kind, settings = SETTINGS[name]
    models = [net(), net()]
    grads = [gradients(model, 6) for model in models]
    fused = hydro.fuse(models, torch.randn(2, 3, 5))
    optimizer = hydro.optimizer(kind, fused, **settings)
    for step in range(6):
        for position, parameter in enumerate(fused.parameters()):
            parameter.grad = torch.stack([grads[trial][step][position] for trial in range(2)])
        optimizer.step()
    for index, model in enumerate(models):
        expected = stepped(kind, model, grads[index], **own(settings, index))
        for mine, its in zip(hydro.extract(fused, index).parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(mine, its, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", SETTINGS)
def test_plain_modules_are_stepped_like_a_single_trial(name):
    kind, settings = SETTINGS[name]
    model = net()
    grads = gradients(model, 5)
    expected = stepped(kind, model, grads, **own(settings, 0))
    optimizer = hydro.optimizer(kind, model, **own(settings, 0))
    for step in grads:
        for parameter, grad in zip(model.parameters(), step, strict=True):
            parameter.grad = grad.clone()
        optimizer.step()
    for mine, its in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=2e-6, atol=2e-7)


def test_parameters_without_gradient_are_left_alone_and_do_not_age():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = hydro.optimizer(torch.optim.Adam, model, lr=0.1)
    twin = copy.deepcopy(model)
    reference = torch.optim.Adam(twin.parameters(), lr=0.1)
    for use_second in (False, False, True):
        for net_, opt in ((model, optimizer), (twin, reference)):
            opt.zero_grad()
            x = net_[0](torch.ones(1, 2))
            (net_[1](x) if use_second else x).sum().backward()
            opt.step()
    for mine, its in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=2e-6, atol=2e-7)


def test_frozen_parameters_are_not_stepped():
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    for model in models:
        model.bias.requires_grad_(False)
    fused = hydro.fuse(models, torch.randn(3, 2))
    optimizer = hydro.optimizer(torch.optim.SGD, fused, lr=0.5)
    before = fused.get_parameter("bias").clone()
    hydro.backward(fused(torch.randn(3, 2)).flatten(1).sum(1))
    optimizer.step()
    assert torch.equal(fused.get_parameter("bias"), before)


def test_hyperparameters_can_be_written_between_steps():
    model = nn.Linear(2, 1, bias=False)
    optimizer = hydro.optimizer(torch.optim.SGD, model, lr=0.1)
    before = model.weight.clone()
    for lr in (0.5, 0.0):
        optimizer.param_groups[0]["lr"] = lr
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
    torch.testing.assert_close(model.weight, before - 0.5)


@pytest.mark.parametrize("rates", [[0.1], [0.1, 0.1], [0.1, 0.2]])
def test_width_rules_hold_however_trials_are_packed(rates):
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    surrogate = hydro.shrink(model, torch.randn(2, 16), scaling=8, optimizer="sgd")
    rules = hydro.rules_of(surrogate)
    fused = hydro.fuse([surrogate] * len(rates), torch.randn(2, 16))
    optimizer = hydro.optimizer(torch.optim.SGD, fused, lr=rates)
    before = {name: tensor.clone() for name, tensor in fused.named_parameters()}
    for parameter in fused.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    factors = set()
    for name, parameter in fused.named_parameters():
        factor = rules[name].lr_multiplier("sgd")
        factors.add(factor)
        for index, rate in enumerate(rates):
            step = before[name][index] - parameter[index]
            torch.testing.assert_close(step, torch.full_like(step, rate * factor), rtol=1e-4, atol=1e-6)
    assert len(factors) > 1


def test_fused_and_unfused_surrogates_decay_alike():
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    surrogate = hydro.shrink(model, torch.randn(2, 16), scaling=8, optimizer="adamw")
    fused = hydro.fuse([surrogate, surrogate], torch.randn(2, 16))
    settings = {"lr": 0.1, "weight_decay": 0.3}
    optimizers = [hydro.optimizer(torch.optim.AdamW, module, **settings) for module in (fused, surrogate)]
    for module, optimizer in zip((fused, surrogate), optimizers, strict=True):
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    for name, parameter in surrogate.named_parameters():
        torch.testing.assert_close(dict(fused.named_parameters())[name][1], parameter)


def test_a_surrogate_for_adam_cannot_be_trained_by_sgd():
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
    surrogate = hydro.shrink(model, torch.randn(2, 8), scaling=4, optimizer="adam")
    for module in (surrogate, hydro.fuse([surrogate], torch.randn(2, 8))):
        with pytest.raises(hydro.FuseError, match="shrunk for adam"):
            hydro.optimizer(torch.optim.SGD, module, lr=0.1)
        hydro.optimizer(torch.optim.AdamW, module, lr=0.1)


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (torch.optim.SGD, {"lr": [0.1]}, "lr has 1 values for 2 trials"),
        (torch.optim.SGD, {"lr": [0.1, -1.0]}, "lr of trial 1"),
        (torch.optim.SGD, {"lr": float("nan")}, "lr of trial 0"),
        (torch.optim.SGD, {"lr": "fast"}, "give a number"),
        (torch.optim.SGD, {"lr": 0.1, "betas": (0.9, 0.9)}, "no hyperparameter 'betas'"),
        (torch.optim.SGD, {"lr": 0.1, "nesterov": True}, "momentum above 0"),
        (torch.optim.Adam, {"betas": [0.9, 0.99]}, "betas of trial 0"),
        (torch.optim.Adam, {"betas": (0.9, 1.0)}, "from 0 up to 1"),
        (torch.optim.Adam, {"amsgrad": 1}, "True or False"),
        (torch.optim.Adam, {"capturable": True}, "capturable"),
        (torch.optim.RMSprop, {"lr": 0.1}, "RMSprop is not supported"),
    ],
)
def test_bad_hyperparameters_are_named(kind, settings, said):
    fused = hydro.fuse([nn.Linear(2, 2), nn.Linear(2, 2)], torch.randn(3, 2))
    with pytest.raises(hydro.FuseError, match=said):
        hydro.optimizer(kind, fused, **settings)


def test_parameters_instead_of_the_module_are_refused():
    with pytest.raises(hydro.FuseError, match="the module itself"):
        hydro.optimizer(torch.optim.SGD, nn.Linear(2, 2).parameters(), lr=0.1)
