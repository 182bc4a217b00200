"""One optimizer for F trials: vectors of hyperparameters, own state, and a step that no trial can spoil."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.optimizers.settings import TrialGroup, TrialSettings
from tuning.core.hydro.optimizers.targets import Target

if TYPE_CHECKING:
    from tuning.core.hydro.schedules import TrialScheduler


class TrialOptimizer:
    """Steps every trial of a module as PyTorch's optimizer would step it alone.

    ``param_groups[i]`` holds the hyperparameters of trial ``i`` and may be written to. ``skipped`` is a mask,
    ``(F,)``, of the trials that the last step left alone because a gradient was not finite;
    ``skipped_steps`` counts how often that happened. Made by ``hydro.optimizer``.
    """

    slots: tuple[str, ...] = ()
    """Names of the state tensors; each has the shape of the parameter."""

    def __init__(self, module: nn.Module, targets: Sequence[Target], rows: Sequence[dict[str, Any]]) -> None:
        self.module = module
        self.targets = list(targets)
        self.trials = len(rows)
        self.schedulers: list[TrialScheduler] = []
        self._stale = True
        self.settings = [TrialSettings(TrialGroup(dict(row), self._invalidate)) for row in rows]
        self.steps = torch.zeros(len(self.targets), self.trials, dtype=torch.float64)
        self.skipped = torch.zeros(self.trials, dtype=torch.bool)
        self.skipped_steps = torch.zeros(self.trials, dtype=torch.int64)
        self.state: dict[str, list[Tensor]] = {
            slot: [torch.zeros_like(target.parameter) for target in self.targets] for slot in self.slots
        }

    def _invalidate(self) -> None:
        self._stale = True

    @property
    def param_groups(self) -> list[TrialGroup]:
        """The hyperparameters, one group per trial."""
        return [settings.group for settings in self.settings]

    @property
    def family(self) -> str:
        raise NotImplementedError

    def values(self, name: str) -> list[Any]:
        """One hyperparameter of every trial."""
        return [settings.group[name] for settings in self.settings]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all trials."""
        for target in self.targets:
            parameter = target.parameter
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """Step every trial whose gradients are all finite; leave the others exactly as they are."""
        active = [index for index, target in enumerate(self.targets) if target.parameter.grad is not None]
        if not active:
            return
        finite = self._finite(active)
        if self._stale:
            self._refresh()
            self._stale = False
        if bool(finite.all()):
            self.skipped.zero_()
            self.steps[active] += 1
            self._update(active)
            return
        self.skipped = ~finite
        self.skipped_steps += self.skipped
        bad = self.skipped.nonzero().flatten()
        if len(bad) < self.trials:
            self._step_without(active, bad)

    def _finite(self, active: list[int]) -> Tensor:
        """Which trials have only finite gradients, (F,): a sum keeps every NaN and infinity."""
        sums = [self.targets[index].trial_sum() for index in active]
        return torch.isfinite(torch.stack(sums).sum(0)).cpu()

    def _step_without(self, active: list[int], bad: Tensor) -> None:
        """Step all trials, then put back what the bad ones had; the others run the very same arithmetic."""
        held: list[Tensor] = [self.targets[index].parameter for index in active]
        held += [tensors[index] for tensors in self.state.values() for index in active]
        rows = bad.to(held[0].device)
        kept = [tensor.index_select(0, rows) for tensor in held]
        steps = self.steps[:, bad].clone()
        self.steps[active] += 1
        self._update(active)
        self.steps[:, bad] = steps
        for tensor, rows_before in zip(held, kept, strict=True):
            tensor.index_copy_(0, rows, rows_before)

    def _refresh(self) -> None:
        """Rebuild the vectors after a hyperparameter changed."""
        raise NotImplementedError

    def _update(self, active: list[int]) -> None:
        """Step the parameters with these positions in ``targets``."""
        raise NotImplementedError

    def table(self, values: Sequence[float], factors: Sequence[float] | None = None) -> Tensor:
        """Values of the trials times factors of the parameters: (parameters, F), in double precision."""
        row = torch.tensor(values, dtype=torch.float64)
        if factors is None:
            return row.expand(len(self.targets), -1)
        return torch.tensor(factors, dtype=torch.float64).unsqueeze(1) * row

    def columns(self, table: Tensor) -> list[Tensor]:
        """Each row of a table as a tensor that broadcasts against its parameter."""
        device = self.targets[0].parameter.device
        rows = table.to(device=device, dtype=torch.float32).unbind(0)
        return [row.view(target.broadcast) for row, target in zip(rows, self.targets, strict=True)]

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything the optimizer remembers, by slot and parameter name; the trials lead every shape."""
        found = {"steps": self.steps.t().clone(), "skipped_steps": self.skipped_steps.clone()}
        for slot, tensors in self.state.items():
            for target, tensor in zip(self.targets, tensors, strict=True):
                found[f"{slot}/{target.name}"] = tensor.reshape(self.trials, *target.trial_shape)
        return found

    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Continue from what ``state_tensors`` returned for as many trials of the same model."""
        own = self.state_tensors()
        if own.keys() != tensors.keys():
            odd = sorted(own.keys() ^ tensors.keys())[0]
            raise FuseError(
                f"optimizer state {odd!r} is on one side only: load it into the same kind of optimizer"
            )
        for name, tensor in own.items():
            if tensors[name].shape != tensor.shape:
                raise FuseError(f"optimizer state {name!r} has another shape: load it into as many trials")
        self.steps = tensors["steps"].to(torch.float64).t().contiguous()
        self.skipped_steps = tensors["skipped_steps"].to(torch.int64).clone()
        for slot, held in self.state.items():
            for target, tensor in zip(self.targets, held, strict=True):
                tensor.copy_(tensors[f"{slot}/{target.name}"].view_as(tensor))
        self._stale = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}(trials={self.trials}, lr={self.values('lr')})"
