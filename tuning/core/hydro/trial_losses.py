"""Per-trial losses, their backward pass and per-trial gradient clipping: no trial sees another."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.fused_module import FusedModule
from tuning.core.hydro.nested import map_tensors, tensors_in
from tuning.core.hydro.optimizers.hyperparameters import per_trial
from tuning.core.hydro.optimizers.targets import targets_of
from tuning.core.hydro.trial_batch import NotCovered, TrialLosses, wrapped


def losses(criterion: Callable[..., Tensor], outputs: Any, target: Any) -> Tensor:
    """The loss of every trial, (F,).

    ``criterion(output, target)`` is the loss of one trial, one number, as the user writes it; ``outputs`` is
    what the fused module returned, ``(F, N, ...)``, and ``target`` belongs to the batch, ``(N, ...)``. Common
    losses run once for all trials, others under ``torch.func.vmap``, and what cannot do that runs per trial.

    Raises ``FuseError`` where the criterion returns more than one number.
    """
    if not tensors_in(outputs):
        raise FuseError("outputs holds no tensor: give what the fused module returned")
    found = _at_once(criterion, outputs, target)
    if found is None:
        found = _one_by_one(criterion, outputs, target)
    if found.dim() != 1:
        raise FuseError(
            f"the criterion returns a tensor of shape {list(found.shape[1:])} per trial: return one number, "
            "the mean over the batch"
        )
    return found


def _at_once(criterion: Callable[..., Tensor], outputs: Any, target: Any) -> Tensor | None:
    try:
        result: Any = criterion(wrapped(outputs), target)
        if isinstance(result, TrialLosses):
            return result.whole
    except NotCovered:
        pass
    except (TypeError, AttributeError, RuntimeError, ValueError):
        # The pretence failed inside PyTorch; whether the criterion itself is wrong shows on real tensors.
        pass
    return None


def _one_by_one(criterion: Callable[..., Tensor], outputs: Any, target: Any) -> Tensor:
    def one(output: Any) -> Tensor:
        return criterion(output, target)

    trials = len(tensors_in(outputs)[0])
    try:
        return torch.func.vmap(one, randomness="error")(outputs)
    except Exception:
        # Data-dependent Python or random numbers: the plain loop has the last word, and its errors count.
        return torch.stack([one(map_tensors(operator.itemgetter(index), outputs)) for index in range(trials)])


def backward(losses: Tensor) -> None:
    """Gradients of the sum over trials, so that every trial gets exactly the gradient that it gets alone.

    A trial whose loss is not finite gets NaN gradients, which the optimizer then leaves out.
    """
    if losses.dim() > 1:
        raise FuseError(f"losses have shape {list(losses.shape)}: give one loss per trial, (F,)")
    # One for a finite loss and NaN for any other, as the weight of the trial in the sum.
    weights = losses.detach() * 0.0 + 1.0
    (losses * weights).sum().backward()


def clip_grad_norm_(module: nn.Module, max_norm: float | Sequence[float], norm_type: float = 2.0) -> Tensor:
    """Scale each trial's gradients so that their joint norm is at most ``max_norm``; return the norms, (F,).

    ``max_norm`` is one value or a list with one per trial. Same arithmetic as
    ``torch.nn.utils.clip_grad_norm_`` on each trial alone.
    """
    trials = module.trials if isinstance(module, FusedModule) else 1
    limits = [float(limit) for limit in per_trial("max_norm", max_norm, trials)]
    if any(not limit >= 0.0 for limit in limits):
        raise FuseError(f"max_norm is {max_norm}: it has to be at least 0")
    targets = [target for target in targets_of(module) if target.parameter.grad is not None]
    if not targets:
        return torch.zeros(trials)
    with torch.no_grad():
        parts = torch.stack([target.trial_norm(norm_type) for target in targets])
        norms = torch.linalg.vector_norm(parts, norm_type, 0)
        scale = (torch.tensor(limits, device=norms.device) / (norms + 1e-6)).clamp(max=1.0)
        for target in targets:
            target.parameter.grad.mul_(scale.view(target.broadcast))  # type: ignore[union-attr]
    return norms
