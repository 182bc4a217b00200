"""Whether a compiled model gives the gradients and random numbers of the eager one, on a batch of its own."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

AGREEMENT = 1e-4  # of the norm of all gradients together; sums in another order differ by less
HALF_AGREEMENT = 2e-2  # for models with parameters of 16 bits


class Restorable:
    """What a step changes besides gradients, taken before it: buffers (BatchNorm's) and the random stream."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.model, self.device = model, device
        self.buffers = [buffer.detach().clone() for buffer in model.buffers()]
        self.random = random_state(device)

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back."""
        for buffer, before in zip(self.model.buffers(), self.buffers, strict=True):
            buffer.copy_(before)
        restore_random(self.device, self.random)


def random_state(device: torch.device) -> Tensor:
    """Return the state of the device's global random stream."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def restore_random(device: torch.device, state: Tensor) -> None:
    """Put the device's global random stream back to a state."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


class Comparison:
    """One step made compiled and then eagerly from the same state; the eager one counts."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.model, self.device = model, device
        self.after: Restorable | None = None
        self.gradients: list[Tensor | None] = []

    def compiled(self, step: Callable[[], Any]) -> None:
        """Make the compiled step and put everything back, also where it raises."""
        before = Restorable(self.model, self.device)
        try:
            step()
            self.after = Restorable(self.model, self.device)
            self.gradients = _gradients_of(self.model)
        finally:
            before.restore()

    def difference(self) -> str | None:
        """Return what the eager step, which was made since, did otherwise; None where nothing is."""
        assert self.after is not None
        if not torch.equal(self.after.random, random_state(self.device)):
            return "it draws other random numbers when it is compiled"
        limit = _limit(self.model)
        buffers = [buffer.detach() for buffer in self.model.buffers()]
        gradients = [parameter.grad for parameter in self.model.parameters()]
        for name, ours, theirs in (
            ("gradients", self.gradients, gradients),
            ("buffers", self.after.buffers, buffers),
        ):
            apart = relative_distance(ours, theirs)
            if not apart <= limit:  # NaN counts as apart
                return f"its {name} differ by {apart:.1e} of their norm when it is compiled"
        return None


def _gradients_of(model: nn.Module) -> list[Tensor | None]:
    return [None if p.grad is None else p.grad.detach().clone() for p in model.parameters()]


def relative_distance(left: Sequence[Tensor | None], right: Sequence[Tensor | None]) -> float:
    """Return the norm of the difference over the norm of `right`, all tensors taken as one vector."""
    apart = whole = 0.0
    for one, other in zip(left, right, strict=True):
        if one is None and other is None:
            continue
        if one is None or other is None:
            return float("inf")
        wide = other.double()
        apart += float((one.double() - wide).square().sum())
        whole += float(wide.square().sum())
    if apart == 0.0:
        return 0.0
    return float((apart / whole) ** 0.5) if whole else float("inf")


def _limit(model: nn.Module) -> float:
    halves = any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters())
    return HALF_AGREEMENT if halves else AGREEMENT
