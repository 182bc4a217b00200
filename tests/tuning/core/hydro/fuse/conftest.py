"""Ways to train trials fused and alone, shared by the tests of fusion."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuning.core import hydro


@pytest.fixture(autouse=True)
def _one_thread_and_seed():
    """Small tensors on one thread, and models that are the same in every run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def _loss(output: Any, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


@pytest.fixture
def loss() -> Callable[[Any, Tensor], Tensor]:
    """Cross-entropy over the last dimension, whatever comes before it."""
    return _loss


@pytest.fixture
def train_alone() -> Callable[..., nn.Module]:
    """Train a copy of one model with PyTorch only."""

    def train(model, batches, seed, kind=torch.optim.SGD, schedule=None, clip=None, **settings):
        model = copy.deepcopy(model).train()
        torch.manual_seed(seed)
        optimizer = kind(model.parameters(), **settings)
        scheduler = schedule(optimizer) if schedule else None
        for inputs, target in batches:
            optimizer.zero_grad()
            _loss(model(inputs), target).backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
        return model

    return train


@pytest.fixture
def train_fused() -> Callable[..., None]:
    """Train a container for some batches, with its schedules."""

    def train(fused, optimizer, batches, clip=None):
        for inputs, target in batches:
            optimizer.zero_grad()
            hydro.backward(hydro.losses(_loss, fused(inputs), target))
            if clip is not None:
                hydro.clip_grad_norm_(fused, clip)
            optimizer.step()
            for scheduler in optimizer.schedulers:
                scheduler.step()

    return train


@pytest.fixture
def same() -> Callable[..., None]:
    """Assert that two models hold the same parameters and buffers, within 1e-5."""

    def check(ours: nn.Module, theirs: nn.Module, tolerance: float = 1e-5, skip: tuple[str, ...] = ()):
        mine, its = ours.state_dict(), theirs.state_dict()
        assert mine.keys() == its.keys()
        for name, tensor in its.items():
            if not any(part in name for part in skip):
                torch.testing.assert_close(mine[name], tensor, rtol=tolerance, atol=tolerance, msg=name)

    return check
