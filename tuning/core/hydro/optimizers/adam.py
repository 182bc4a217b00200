"""Adam and AdamW, per trial: Kingma and Ba, arXiv 1412.6980; Loshchilov and Hutter, arXiv 1711.05101."""

import torch
from torch import Tensor

from tuning.core.hydro.optimizers.trial_optimizer import TrialOptimizer


class TrialAdam(TrialOptimizer):
    """``torch.optim.Adam`` and ``AdamW`` for F trials, each with its own rates, betas, epsilon and decay."""

    slots = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    family = "adam"

    def _refresh(self) -> None:
        rules = [target.rule for target in self.targets]
        lr_factors = [1.0 if rule is None else rule.lr_multiplier("adam") for rule in rules]
        decay_factors = [1.0 if rule is None else rule.weight_decay_multiplier("adam") for rule in rules]
        eps_factors = [1.0 if rule is None else rule.adam_eps for rule in rules]
        self._lr = self.table(self.values("lr"), lr_factors)
        decay = self.table(self.values("weight_decay"), decay_factors)
        decoupled = torch.tensor(self.values("decoupled_weight_decay"))
        shrink, add = torch.where(decoupled, self._lr * decay, 0.0), torch.where(decoupled, 0.0, decay)
        self._shrink = self.columns(1.0 - shrink) if bool(shrink.any()) else None
        self._decay = self.columns(add) if bool(add.any()) else None
        self._eps = self.columns(self.table(self.values("eps"), eps_factors))
        betas = list(zip(*self.values("betas"), strict=True))
        self._beta1, self._beta2 = self.table(betas[0]), self.table(betas[1])
        self._first_share = self.columns(1.0 - self._beta1)
        self._second_share = self.columns(1.0 - self._beta2)
        signs = [-1.0 if flag else 1.0 for flag in self.values("maximize")]
        self._sign = self.columns(self.table(signs)) if any(self.values("maximize")) else None
        amsgrad = self.values("amsgrad")
        self._amsgrad = self.columns(self.table([float(flag) for flag in amsgrad])) if any(amsgrad) else None

    def _update(self, active: list[int]) -> None:
        first, second = 1.0 - self._beta1**self.steps, 1.0 - self._beta2**self.steps
        rates = self.columns(-self._lr / first)
        scales = self.columns(second.rsqrt())
        for index in active:
            parameter = self.targets[index].parameter
            gradient: Tensor = parameter.grad  # type: ignore[assignment]
            if self._sign is not None:
                gradient = gradient * self._sign[index]
            if self._shrink is not None:
                parameter.mul_(self._shrink[index])
            if self._decay is not None:
                gradient = torch.addcmul(gradient, parameter, self._decay[index])
            mean = self.state["exp_avg"][index].lerp_(gradient, self._first_share[index])
            scratch = gradient * gradient
            square = self.state["exp_avg_sq"][index].lerp_(scratch, self._second_share[index])
            if self._amsgrad is not None:
                square = self._largest(index, square)
            # In separate passes: each is vectorised, while addcmul with two broadcast operands is not.
            torch.sqrt(square, out=scratch).mul_(scales[index]).add_(self._eps[index])
            torch.div(mean, scratch, out=scratch)
            parameter.addcmul_(scratch, rates[index])

    def _largest(self, index: int, square: Tensor) -> Tensor:
        """The largest second moment so far where a trial uses AMSGrad, the present one elsewhere."""
        largest = self.state["max_exp_avg_sq"][index]
        torch.maximum(largest, square, out=largest)
        return torch.where(self._amsgrad[index] > 0, largest, square)  # type: ignore[index]
