"""Nothing couples the trials of a container: not a NaN, not clipping, not the size of the company."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tuning.core import hydro


def net():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(64, 8),
        nn.Tanh(),
        nn.Linear(8, 3),
    )


def batches(count, rows=5):
    return [(torch.randn(rows, 1, 6, 6), torch.randint(0, 3, (rows,))) for _ in range(count)]


def container(models, lrs, seeds, kind=torch.optim.SGD, **settings):
    fused = hydro.fuse(models, torch.randn(4, 1, 6, 6), seeds=seeds).train()
    return fused, hydro.optimizer(kind, fused, lr=lrs, **settings)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_non_finite_trial_leaves_the_others_bit_identical(kind, value, train_fused):
    models = [net() for _ in range(3)]
    sick = copy.deepcopy(models)
    with torch.no_grad():
        sick[1][-1].weight[0, 0] = value
    data = batches(4)
    ends = []
    for group in (models, sick):
        fused, optimizer = container(group, [0.05, 0.05, 0.01], [1, 2, 3], kind)
        hydro.scheduler(torch.optim.lr_scheduler.ExponentialLR, optimizer, gamma=0.9)
        train_fused(fused, optimizer, data, clip=1.0)
        ends.append((fused, optimizer))
    (well, _), (ill, optimizer) = ends
    for name, tensor in well.tensors().items():
        for index in (0, 2):
            assert torch.equal(tensor[index], ill.tensors()[name][index]), name
    assert optimizer.skipped.tolist() == [False, True, False]
    assert optimizer.skipped_steps.tolist() == [0, 4, 0]
    for name, parameter in dict(sick[1].named_parameters()).items():
        found = dict(ill.named_parameters())[name][1]
        torch.testing.assert_close(found, parameter, rtol=0, atol=0, equal_nan=True)


def test_a_trial_that_recovers_goes_on_where_it_was():
    fused, optimizer = container([net(), net()], 0.1, [1, 2], momentum=0.9)
    (inputs, target) = batches(1)[0]
    loss = nn.functional.cross_entropy
    hydro.backward(hydro.losses(loss, fused(inputs), target))
    optimizer.step()
    before = {name: t[1].clone() for name, t in fused.named_parameters()}
    optimizer.zero_grad()
    values = hydro.losses(loss, fused(inputs), target)
    hydro.backward(values * torch.tensor([1.0, float("inf")]))
    optimizer.step()
    assert all(torch.equal(t[1], before[name]) for name, t in fused.named_parameters())
    optimizer.zero_grad()
    hydro.backward(hydro.losses(loss, fused(inputs), target))
    optimizer.step()
    assert not all(torch.equal(t[1], before[name]) for name, t in fused.named_parameters())
    assert optimizer.skipped.tolist() == [False, False]
    assert optimizer.steps[0].tolist() == [3.0, 2.0]


def test_losses_are_summed_not_averaged():
    models = [net().eval() for _ in range(4)]
    fused, _ = container(models, 0.1, [1, 2, 3, 4])
    inputs, target = batches(1)[0]
    fused.eval()
    hydro.backward(hydro.losses(nn.functional.cross_entropy, fused(inputs), target))
    for index, model in enumerate(models):
        nn.functional.cross_entropy(model(inputs), target).backward()
        found = dict(fused.named_parameters())
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[name].grad[index], parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_gradients_are_clipped_within_each_trial(norm_type):
    models = [net().eval() for _ in range(3)]
    fused, _ = container(models, 0.1, [1, 2, 3])
    inputs, target = batches(1)[0]
    limits = [0.01, 100.0, 0.1]
    hydro.backward(hydro.losses(nn.functional.cross_entropy, fused.eval()(inputs), target))
    norms = hydro.clip_grad_norm_(fused, limits, norm_type)
    for index, model in enumerate(models):
        nn.functional.cross_entropy(model(inputs), target).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), limits[index], norm_type)
        torch.testing.assert_close(norms[index], norm)
        for name, parameter in model.named_parameters():
            found = dict(fused.named_parameters())[name].grad[index]
            torch.testing.assert_close(found, parameter.grad, rtol=1e-4, atol=1e-6)


@given(
    company=st.lists(st.sampled_from([0.2, 0.05, 0.0]), min_size=0, max_size=3),
    place=st.integers(0, 3),
    rate=st.sampled_from([0.2, 0.05]),
    kind=st.sampled_from([torch.optim.SGD, torch.optim.AdamW]),
)
@settings(max_examples=12, deadline=None)
def test_packing_never_changes_a_trial(company, place, rate, kind):
    torch.manual_seed(3)
    model, data = net(), batches(5)
    others = [net() for _ in company]
    place = min(place, len(company))
    extra = {"momentum": 0.9, "weight_decay": 1e-3} if kind is torch.optim.SGD else {}
    packed = _trained(
        [*others[:place], model, *others[place:]],
        [*company[:place], rate, *company[place:]],
        [*range(20, 20 + place), 7, *range(40, 40 + len(company) - place)],
        data,
        kind,
        extra,
    )
    single = _trained([model], rate, [7], data, kind, extra)
    for name, tensor in single.tensors().items():
        torch.testing.assert_close(packed.tensors()[name][place], tensor[0], rtol=1e-5, atol=1e-5)


def _trained(models, lrs, seeds, data, kind, extra):
    fused, optimizer = container(models, lrs, seeds, kind, **extra)
    for inputs, target in data:
        optimizer.zero_grad()
        hydro.backward(hydro.losses(nn.functional.cross_entropy, fused(inputs), target))
        optimizer.step()
    return fused
