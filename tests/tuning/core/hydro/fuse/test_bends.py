"""Rounding may carry a value over the bend of a ReLU, where the gradient jumps: no fault of fusing."""

import pytest
import torch

from tuning.core import hydro
from tuning.core.hydro import fused_module
from workers.trainer.workloads.networks import ResidualDigits


@pytest.mark.parametrize("seed", [1, 7, 12, 19, 58])
def test_a_large_batch_is_not_refused(seed):
    """Where these were found, one rectified value of some hundred thousand changed its sign in each."""
    torch.manual_seed(seed)
    images = torch.randn(64, 1, 28, 28)
    fused = hydro.fuse([ResidualDigits(4) for _ in range(30)], images, seeds=list(range(30)))
    assert fused.trials == 30


@pytest.mark.parametrize("part", [1e-2, 0.5])
def test_a_gradient_that_is_wrong_in_double_precision_too_is_refused(monkeypatch, part):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * (1 + part)

    program = fused_module.FusedModule.forward
    monkeypatch.setattr(
        fused_module.FusedModule, "forward", lambda self, *args: Wrong.apply(program(self, *args))
    )
    with pytest.raises(hydro.FuseError, match="differs from the model alone"):
        hydro.fuse([ResidualDigits(4), ResidualDigits(4)], torch.randn(4, 1, 28, 28), seeds=[0, 1])
