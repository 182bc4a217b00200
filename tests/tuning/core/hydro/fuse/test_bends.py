"""Rounding may carry a value over the bend of a ReLU, where the gradient jumps: no fault of fusing."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tuning.core import hydro
from tuning.core.hydro import fused_module


class Digits(nn.Module):
    """A small residual network with so many rectified values that some lie next to zero."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(3))
        self.convolutions = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        value = F.relu(self.norms[0](self.stem(images)))
        branch = F.relu(self.norms[1](self.convolutions[0](value)))
        value = F.relu(value + self.norms[2](self.convolutions[1](branch)))
        return self.head(value.mean((2, 3)))


@pytest.mark.parametrize("seed", range(12))
def test_a_large_batch_is_not_refused(seed):
    torch.manual_seed(seed)
    images = torch.randn(64, 1, 28, 28)
    fused = hydro.fuse([Digits() for _ in range(30)], images, seeds=list(range(30)))
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
        hydro.fuse([Digits(), Digits()], torch.randn(4, 1, 28, 28), seeds=[0, 1])
