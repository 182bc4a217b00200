"""Per-trial losses: whatever the criterion, the value and the gradient of the trial alone."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tuning.core import hydro

CLASSES = 4
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 1.5])


def logits(*shape):
    return torch.randn(3, *shape, CLASSES, requires_grad=True)


def classes(*shape):
    return torch.randint(0, CLASSES, shape)


def annealed(output, target):
    return 0.3 * F.cross_entropy(output, target) + F.cross_entropy(output, target, label_smoothing=0.2) / 2


def penalised(output, target):
    return F.cross_entropy(output, target) + 0.1 * output.pow(2).mean()


def text(output, target):
    return F.cross_entropy(output.view(-1, output.size(-1)), target.reshape(-1), ignore_index=0)


def pixels(output, target):
    return F.cross_entropy(output.transpose(1, 2), target)


def branching(output, target):
    return output.sum() if float(output.detach().max()) > 100.0 else F.mse_loss(output[:, 0], target.float())


CRITERIA = {
    "cross entropy": (F.cross_entropy, (5,), classes(5)),
    "cross entropy layer": (nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.1), (5,), classes(5)),
    "ignored classes": (nn.CrossEntropyLoss(ignore_index=2, weight=WEIGHT), (9,), classes(9)),
    "summed": (nn.CrossEntropyLoss(reduction="sum"), (5,), classes(5)),
    "soft targets": (F.cross_entropy, (5,), torch.rand(5, CLASSES).softmax(-1)),
    "log likelihood": (lambda o, t: F.nll_loss(o.log_softmax(-1), t), (5,), classes(5)),
    "nll": (nn.NLLLoss(), (5,), classes(5)),
    "mse": (nn.MSELoss(), (5,), torch.randn(5, CLASSES)),
    "l1": (F.l1_loss, (5,), torch.randn(5, CLASSES)),
    "smooth": (nn.SmoothL1Loss(beta=0.5), (5,), torch.randn(5, CLASSES)),
    "huber": (nn.HuberLoss(delta=0.3), (5,), torch.randn(5, CLASSES)),
    "binary": (nn.BCEWithLogitsLoss(pos_weight=WEIGHT), (5,), torch.rand(5, CLASSES).round()),
    "weighted sum": (annealed, (5,), classes(5)),
    "by vmap": (penalised, (5,), classes(5)),
    "text": (text, (2, 6), classes(2, 6)),
    "positions": (pixels, (2, 6), classes(2, 6)),
    "data-dependent, one by one": (branching, (5,), torch.randn(5)),
    "cosine": (lambda o, t: 1 - F.cosine_similarity(o, t).mean(), (5,), torch.randn(5, CLASSES)),
}


@pytest.mark.parametrize("name", CRITERIA)
def test_losses_and_gradients_are_those_of_each_trial(name):
    criterion, shape, target = CRITERIA[name]
    outputs = logits(*shape)
    found = hydro.losses(criterion, outputs, target)
    assert found.shape == (3,)
    hydro.backward(found)
    grad = outputs.grad.clone()
    for index in range(3):
        own = outputs[index].detach().clone().requires_grad_()
        expected = criterion(own, target)
        expected.backward()
        torch.testing.assert_close(found[index], expected.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(grad[index], own.grad, rtol=1e-5, atol=1e-6)


def test_structured_outputs_reach_the_criterion_as_they_are():
    outputs = {"main": logits(5), "extra": (logits(5), logits(5))}

    def criterion(output, target):
        main = F.cross_entropy(output["main"], target)
        return main + 0.5 * sum(F.cross_entropy(extra, target) for extra in output["extra"])

    target = classes(5)
    found = hydro.losses(criterion, outputs, target)
    for index in range(3):
        own = {"main": outputs["main"][index], "extra": tuple(extra[index] for extra in outputs["extra"])}
        torch.testing.assert_close(found[index], criterion(own, target))


def test_a_criterion_that_changes_is_run_anew():
    class Annealed:
        factor = 1.0

        def __call__(self, output, target):
            return self.factor * F.cross_entropy(output, target)

    criterion, outputs, target = Annealed(), logits(5), classes(5)
    before = hydro.losses(criterion, outputs, target)
    criterion.factor = 3.0
    torch.testing.assert_close(hydro.losses(criterion, outputs, target), 3.0 * before)


def test_a_non_finite_loss_spoils_its_own_gradients_only():
    outputs = logits(5)
    losses = hydro.losses(F.cross_entropy, outputs, classes(5))
    hydro.backward(losses + torch.tensor([0.0, math.inf, 0.0]))
    finite = outputs.grad.isfinite().flatten(1).all(1)
    assert finite.tolist() == [True, False, True]


def test_a_loss_per_sample_is_refused():
    with pytest.raises(hydro.FuseError, match="one number"):
        hydro.losses(nn.CrossEntropyLoss(reduction="none"), logits(5), classes(5))
    with pytest.raises(hydro.FuseError, match="one loss per trial"):
        hydro.backward(logits(5))


def test_the_criterions_own_errors_are_shown():
    with pytest.raises(KeyError, match="missing"):
        hydro.losses(lambda output, target: {}["missing"], logits(5), classes(5))


def test_outputs_without_tensors_are_refused():
    with pytest.raises(hydro.FuseError, match="no tensor"):
        hydro.losses(F.cross_entropy, None, classes(5))
