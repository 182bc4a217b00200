"""Whether a compiled model gives the gradients and random numbers of the eager one, on a batch of its own."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

# Shares of the norm of what is compared. The loss follows rounding smoothly, gradients do not: a ReLU flips
# whose input is 0 but for rounding, for all pixels of a plain background at once; that moved them by 2e-3.
LOSS, GRADIENTS, BUFFERS = 1e-4, 5e-3, 1e-3
TINY_LOSS = 1e-5  # losses that differ by less are equal, however small they are
HALF = 5.0  # times as much, and at least 1e-2, for models with parameters of 16 bits


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
        self.loss = torch.zeros(())
        self.gradients: list[Tensor | None] = []

    def compiled(self, step: Callable[[], Tensor]) -> None:
        """Make the compiled step and put everything back, also where it raises."""
        before = Restorable(self.model, self.device)
        try:
            self.loss = step()
            self.after = Restorable(self.model, self.device)
            self.gradients = _gradients_of(self.model)
        finally:
            before.restore()

    def difference(self, loss: Tensor) -> str | None:
        """Return what the eager step made since, with this loss, did otherwise; None where nothing."""
        assert self.after is not None
        if not torch.equal(self.after.random, random_state(self.device)):
            return "compiled, it draws other random numbers"
        losses = [self.loss] if float((self.loss - loss).abs().max()) > TINY_LOSS else [loss]
        buffers = [buffer.detach() for buffer in self.model.buffers()]
        gradients = [parameter.grad for parameter in self.model.parameters()]
        for name, limit, ours, theirs in (
            ("loss", LOSS, losses, [loss]),
            ("gradients", GRADIENTS, self.gradients, gradients),
            ("buffers", BUFFERS, self.after.buffers, buffers),
        ):
            apart = relative_distance(ours, theirs)
            if not apart <= _widened(limit, self.model):  # NaN counts as apart
                return f"compiled, its {name} differ by {apart:.1e} of their norm"
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


def _widened(limit: float, model: nn.Module) -> float:
    halves = any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters())
    return max(HALF * limit, 1e-2) if halves else limit
