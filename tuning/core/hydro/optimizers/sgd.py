"""SGD with momentum, Nesterov momentum, dampening and weight decay, per trial."""

from typing import Any

import torch
from torch import Tensor

from tuning.core.hydro.optimizers.trial_optimizer import TrialOptimizer


class TrialSGD(TrialOptimizer):
    """``torch.optim.SGD`` for F trials: two passes over memory per step with momentum, one without."""

    slots = ("momentum_buffer",)
    family = "sgd"

    def _refresh(self) -> None:
        rules = [target.rule for target in self.targets]
        lr_factors = [1.0 if rule is None else rule.lr_multiplier("sgd") for rule in rules]
        decay_factors = [1.0 if rule is None else rule.weight_decay_multiplier("sgd") for rule in rules]
        lr, momentum = self.values("lr"), self.values("momentum")
        self._negative_lr = self.columns(-self.table(lr, lr_factors))
        decays = self.values("weight_decay")
        self._decay = self.columns(self.table(decays, decay_factors)) if any(decays) else None
        self._momentum = self.columns(self.table(momentum)) if any(momentum) else None
        self._dampening = self.table(self.values("dampening")) if any(self.values("dampening")) else None
        nesterov = self.values("nesterov")
        self._look_ahead = self._nesterov_columns(momentum, nesterov) if any(nesterov) else None
        signs = [-1.0 if flag else 1.0 for flag in self.values("maximize")]
        self._sign = self.columns(self.table(signs)) if any(self.values("maximize")) else None

    def _nesterov_columns(self, momentum: list[float], nesterov: list[bool]) -> tuple[Any, Any]:
        """Weights of the gradient and of the buffer in the update of each trial."""
        gradient = [1.0 if flag else 0.0 for flag in nesterov]
        buffer = [m if flag else 1.0 for m, flag in zip(momentum, nesterov, strict=True)]
        return self.columns(self.table(gradient)), self.columns(self.table(buffer))

    def _gradient_share(self) -> list[Tensor] | None:
        """One minus dampening; one in a trial's first step and where there is no momentum, as in PyTorch."""
        if self._dampening is None:
            return None
        plain = (self.steps <= 1) | (self.table(self.values("momentum")) == 0)
        return self.columns(torch.where(plain, 1.0, 1.0 - self._dampening))

    def _update(self, active: list[int]) -> None:
        shares = self._gradient_share()
        for index in active:
            parameter = self.targets[index].parameter
            step: Tensor = parameter.grad  # type: ignore[assignment]
            if self._sign is not None:
                step = step * self._sign[index]
            if self._decay is not None:
                step = torch.addcmul(step, parameter, self._decay[index])
            if self._momentum is not None:
                share = None if shares is None else shares[index]
                step = self._with_momentum(index, step, share)
            parameter.addcmul_(step, self._negative_lr[index])

    def _with_momentum(self, index: int, gradient: Tensor, share: Tensor | None) -> Tensor:
        buffer = self.state["momentum_buffer"][index]
        added = gradient if share is None else gradient * share
        torch.addcmul(added, buffer, self._momentum[index], out=buffer)  # type: ignore[index]
        if self._look_ahead is None:
            return buffer
        of_gradient, of_buffer = self._look_ahead
        return torch.addcmul(gradient * of_gradient[index], buffer, of_buffer[index])
