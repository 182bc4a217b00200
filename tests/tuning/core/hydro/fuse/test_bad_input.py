"""Models that cannot share a container: one clear error each, naming the layer, tensor or value."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tuning.core import hydro

X = torch.randn(4, 3)


def linear(**options):
    return nn.Sequential(nn.Linear(3, 2, **options), nn.ReLU())


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x) * float(self.layer.weight.detach().sum())


class Overwriting(nn.Module):
    """Changes a tensor through a view of it, which the recorded graph does not show."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        y = self.layer(x)
        z = y[:, :1]
        z.mul_(3.0)
        return y


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x) + torch.randn_like(x[:, :2])


class Tagged(nn.Module):
    def __init__(self, tag, factor=1.0):
        super().__init__()
        self.layer, self.tag, self.factor = nn.Linear(3, 2), tag, factor

    def forward(self, x):
        return self.layer(x) * self.factor


def hooked():
    model = linear()
    model[0].register_forward_hook(lambda *args: None)
    return model


def meta():
    return nn.Linear(3, 2, device="meta")


CASES = {
    "not a list": (lambda: linear(), {}, "give a list of models"),
    "empty": (lambda: [], {}, "at least one model"),
    "not a model": (lambda: [linear(), 3], {}, r"models\[1\] is a int"),
    "other structure": (lambda: [linear(), nn.Sequential(nn.Linear(3, 2), nn.Tanh())], {}, "layer '1'"),
    "other width": (lambda: [nn.Linear(3, 2), nn.Linear(3, 5)], {}, r"weight has shape \[2, 3\].*\[5, 3\]"),
    "other bias": (lambda: [nn.Linear(3, 2), nn.Linear(3, 2, bias=False)], {}, "bias"),
    "other setting": (
        lambda: [nn.Sequential(nn.Linear(3, 2), nn.Dropout(p)) for p in (0.1, 0.2)],
        {},
        r"1\.p differs",
    ),
    "other factor": (lambda: [Tagged("a"), Tagged("b", 2.0)], {}, "factor"),
    "float64": (lambda: [linear().double()], {}, "float64.*model.float"),
    "half": (lambda: [linear(), linear().half()], {}, "0.weight has dtype"),
    "float64 input": (lambda: [linear()], {"example": X.double()}, "float64"),
    "meta": (lambda: [meta()], {}, "meta device"),
    "hooks": (lambda: [hooked()], {}, "layer '0' .*hooks"),
    "no parameters": (lambda: [nn.ReLU()], {}, "no parameters"),
    "seeds too few": (lambda: [linear(), linear()], {"seeds": [1]}, "seeds has 1 values for 2"),
    "seed of another type": (lambda: [linear()], {"seeds": [0.5]}, "seeds holds 0.5"),
    "max_norm": (
        lambda: [nn.Embedding(3, 2, max_norm=1.0)],
        {"example": torch.tensor([1])},
        "max_norm",
    ),
    "sparse": (lambda: [nn.Embedding(3, 2, sparse=True)], {"example": torch.tensor([1])}, "sparse"),
    "values of weights": (lambda: [Branching(), Branching()], {}, "."),
    "noise": (lambda: [Noisy()], {}, "."),
    "inputs that do not fit": (lambda: [linear()], {"example": torch.randn(4, 7)}, "fails on example_inputs"),
    "no inputs": (lambda: [linear()], {"example": None}, "example_inputs"),
    "packed sequences": (
        lambda: [nn.LSTM(3, 2)],
        {"example": nn.utils.rnn.pack_sequence([torch.randn(4, 3)])},
        ".",
    ),
    "fused already": (lambda: [hydro.fuse([linear()], X)], {}, "hydro.merge"),
}


@pytest.mark.parametrize("name", CASES)
def test_models_that_cannot_be_fused_are_refused_in_one_sentence(name):
    models, options, said = CASES[name]
    with pytest.raises(hydro.FuseError, match=said) as caught:
        hydro.fuse(models(), options.get("example", X), seeds=options.get("seeds"))
    assert "\n" not in str(caught.value)


def test_overwriting_through_a_view_is_either_right_or_refused():
    models = [Overwriting(), Overwriting()]
    try:
        fused = hydro.fuse(models, X)
    except hydro.FuseError:
        return
    for index, model in enumerate(models):
        torch.testing.assert_close(fused(X)[index], model(X))


def test_names_and_other_attributes_that_do_not_matter_may_differ():
    fused = hydro.fuse([Tagged("first"), Tagged("second")], X)
    assert fused.trials == 2


def test_a_batch_of_one_under_batch_norm_is_explained():
    fused = hydro.fuse([nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))], X).train()
    with pytest.raises(hydro.FuseError, match="one sample"):
        fused(X[:1])
    assert fused.eval()(X[:1]).shape == (1, 1, 2)


def test_a_fused_module_keeps_its_type_and_device():
    fused = hydro.fuse([linear()], X)
    with pytest.raises(hydro.FuseError, match="float64"):
        fused.double()
    assert fused.to("cpu") is fused


def test_missing_and_unknown_inputs_are_named():
    fused = hydro.fuse([linear()], X)
    with pytest.raises(hydro.FuseError, match="do not fit"):
        fused()
    with pytest.raises(hydro.FuseError, match="do not fit"):
        fused(X, mask=X)


def test_clipping_wants_a_limit_per_trial():
    fused = hydro.fuse([linear(), linear()], X)
    with pytest.raises(hydro.FuseError, match="max_norm has 3 values"):
        hydro.clip_grad_norm_(fused, [1.0, 1.0, 1.0])
    with pytest.raises(hydro.FuseError, match="at least 0"):
        hydro.clip_grad_norm_(fused, -1.0)
    assert hydro.clip_grad_norm_(fused, 1.0).tolist() == [0.0, 0.0]


def test_a_layer_named_like_an_attribute_of_modules_is_explained():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.trials = nn.Linear(3, 2)

        def forward(self, x):
            return F.relu(self.trials(x))

    with pytest.raises(hydro.FuseError, match="'trials'"):
        hydro.fuse([Odd()], X)
