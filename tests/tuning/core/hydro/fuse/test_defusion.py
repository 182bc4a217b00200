"""Defusing, merging and extracting: trials go on exactly where they were, with everything they carry."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from tuning.core import hydro


class Net(nn.Module):
    """Every kind of state: bias after convolution, batch norm, layer norm, embedding, dropout, a tie."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(5, 6, padding_idx=0)
        self.mix = nn.Conv1d(6, 6, 3, padding=1)
        self.norm = nn.BatchNorm1d(6)
        self.layer_norm = nn.LayerNorm(6)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(6, 5)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens)
        x = x + self.norm(self.mix(x.transpose(1, 2))).transpose(1, 2)
        return self.head(self.drop(self.layer_norm(x)))


def batches(count):
    return [(torch.randint(0, 5, (4, 7)), torch.randint(0, 5, (4, 7))) for _ in range(count)]


KINDS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 1e-3}),
    "adam": (torch.optim.Adam, {"amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
}


def container(models, example, seeds, lrs, gammas, kind, settings):
    fused = hydro.fuse(models, example, seeds=seeds).train()
    optimizer = hydro.optimizer(kind, fused, lr=lrs, **settings)
    hydro.scheduler(lr_scheduler.StepLR, optimizer, step_size=3, gamma=gammas)
    return fused, optimizer


@pytest.mark.parametrize("name", KINDS)
def test_survivors_of_two_containers_train_on_together_as_if_alone(name, train_alone, train_fused, same):
    kind, settings = KINDS[name]
    models = [Net() for _ in range(5)]
    lrs, gammas, data = [0.02, 0.01, 0.03, 0.02, 0.05], [0.5, 0.6, 0.7, 0.8, 0.9], batches(24)
    lrs = [lr * (1.0 if kind is torch.optim.SGD else 0.1) for lr in lrs]
    example = data[0][0]
    first = container(models[:3], example, [0, 1, 2], lrs[:3], gammas[:3], kind, settings)
    second = container(models[3:], example, [3, 4], lrs[3:], gammas[3:], kind, settings)
    train_fused(*first, data[:8])
    train_fused(*second, data[:8])
    left = hydro.defuse(*first, [2, 0])
    right = hydro.defuse(*second, [1])
    train_fused(*left, data[8:16])
    train_fused(*right, data[8:16])
    whole, optimizer = hydro.merge([left, right])
    train_fused(whole, optimizer, data[16:])
    assert whole.trials == 3
    for place, trial in enumerate([2, 0, 4]):
        gamma = gammas[trial]
        alone = train_alone(
            models[trial],
            data,
            trial,
            kind,
            lambda opt, gamma=gamma: lr_scheduler.StepLR(opt, 3, gamma),
            lr=lrs[trial],
            **settings,
        )
        # The bias before batch norm has no gradient but rounding, which Adam blows up to full steps.
        rounding = () if kind is torch.optim.SGD else ("mix.bias", "norm.running_mean")
        same(hydro.extract(whole, place), alone, skip=rounding)
        assert optimizer.schedulers[0].get_last_lr()[place] == pytest.approx(lrs[trial] * gamma**8, rel=1e-12)


def test_defusing_leaves_the_container_as_it_was(train_fused):
    fused, optimizer = container(
        [Net() for _ in range(3)], batches(1)[0][0], [0, 1, 2], 0.1, 0.5, *KINDS["sgd"]
    )
    train_fused(fused, optimizer, batches(2))
    before = {name: tensor.clone() for name, tensor in fused.tensors().items()}
    states = fused.streams.states()
    part, part_optimizer = hydro.defuse(fused, optimizer, [1])
    train_fused(part, part_optimizer, batches(2))
    assert all(torch.equal(tensor, before[name]) for name, tensor in fused.tensors().items())
    assert torch.equal(fused.streams.states(), states)
    assert part_optimizer.values("lr") != optimizer.values("lr")


def test_trials_can_be_taken_apart_again_and_again(train_fused):
    fused, optimizer = container([Net() for _ in range(2)], batches(1)[0][0], [0, 1], 0.1, 0.5, *KINDS["sgd"])
    for _ in range(30):
        fused, optimizer = hydro.defuse(fused, optimizer, [1, 0])
    train_fused(fused, optimizer, batches(1))
    assert fused.seeds == [0, 1]


def test_extracted_models_are_ordinary_and_independent(train_fused):
    models = [Net() for _ in range(2)]
    fused, optimizer = container(models, batches(1)[0][0], [0, 1], 0.1, 0.5, *KINDS["sgd"])
    model = hydro.extract(fused, 1)
    assert type(model) is Net
    assert model.head.weight is model.tokens.weight
    assert model.state_dict().keys() == models[1].state_dict().keys()
    for name, tensor in models[1].state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    train_fused(fused, optimizer, batches(1))
    assert torch.equal(model.tokens.weight, models[1].tokens.weight)


def test_a_tied_weight_gets_the_gradient_of_both_places():
    model = Net().eval()
    fused = hydro.fuse([model, model], batches(1)[0][0]).eval()
    tokens, target = batches(1)[0]

    def loss(output, target):
        return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())

    hydro.backward(hydro.losses(loss, fused(tokens), target))
    loss(model(tokens), target).backward()
    named = dict(fused.named_parameters())
    assert "head.weight" not in named
    for index in range(2):
        torch.testing.assert_close(named["tokens.weight"].grad[index], model.tokens.weight.grad)


def test_the_padding_row_of_every_trial_stays_and_no_other_trial_is_touched():
    models = [nn.Sequential(nn.Embedding(6, 3, padding_idx=5)) for _ in range(2)]
    fused = hydro.fuse(models, torch.tensor([[0, 5]])).train()
    for index, model in enumerate(models):
        assert torch.equal(fused.tensors()["0.weight"][index], model[0].weight)
        assert not fused.tensors()["0.weight"][index, 5].any()
    hydro.backward(fused(torch.tensor([[1, 5, 5]])).flatten(1).sum(1))
    grad = fused.get_parameter("0.weight").grad
    assert not grad[:, 5].any()
    assert bool((grad[:, 1] == 1).all())


def test_buffers_that_differ_between_containers_are_merged_per_trial():
    class Fixed(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.register_buffer("offset", torch.full((2,), value))

        def forward(self, x):
            return self.layer(x) + self.offset

    inputs = torch.randn(4, 3)
    models = [Fixed(1.0), Fixed(5.0)]
    parts = [(hydro.fuse([model], inputs), None) for model in models]
    whole, _ = hydro.merge(parts)
    for index, model in enumerate(models):
        torch.testing.assert_close(whole(inputs)[index], model(inputs))
        assert torch.equal(hydro.extract(whole, index).offset, model.offset)


def test_merging_what_does_not_belong_together_is_refused():
    inputs = torch.randn(4, 3)

    def part(width=2, kind=torch.optim.SGD, schedule=False):
        fused = hydro.fuse([nn.Linear(3, width)], inputs)
        optimizer = hydro.optimizer(kind, fused, lr=0.1)
        if schedule:
            hydro.scheduler(lr_scheduler.ExponentialLR, optimizer, gamma=0.9)
        return fused, optimizer

    for parts, said in (
        ([part(), part(width=3)], "weight has shape"),
        ([part(), part(kind=torch.optim.Adam)], "kind of optimizer"),
        ([part(), part(schedule=True)], "schedulers"),
        ([part(), (part()[0], None)], "for every part or for none"),
        ([(part()[0], part()[1])], "another module"),
        ([], "no parts"),
    ):
        with pytest.raises(hydro.FuseError, match=said):
            hydro.merge(parts)
    evaluating = part()
    evaluating[0].eval()
    with pytest.raises(hydro.FuseError, match="mode"):
        hydro.merge([part(), evaluating])


@pytest.mark.parametrize(
    ("keep", "said"), [([], "empty"), ([2], "0 to 1"), ([0, 0], "twice"), ([True], "True")]
)
def test_trials_that_are_not_there_cannot_be_kept(keep, said):
    fused = hydro.fuse([nn.Linear(3, 2), nn.Linear(3, 2)], torch.randn(4, 3))
    with pytest.raises(hydro.FuseError, match=said):
        hydro.defuse(fused, None, keep)


def test_a_trial_that_is_not_there_cannot_be_extracted():
    fused = hydro.fuse([nn.Linear(3, 2)], torch.randn(4, 3))
    with pytest.raises(hydro.FuseError, match="not in this container"):
        hydro.extract(fused, 1)


def test_deep_copies_share_nothing():
    fused = hydro.fuse([nn.Linear(3, 2)], torch.randn(4, 3))
    twin = copy.deepcopy(fused)
    with torch.no_grad():
        twin.get_parameter("weight").zero_()
    assert bool(fused.get_parameter("weight").any())
