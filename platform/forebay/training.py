"""The words of a training function: `prepare_model`, `prepare_optimizer`, ..., `report`.

Under `forebay tune` they stand for a surrogate, for several trials at once, or for a target. Called outside
of it they do the ordinary thing, so a training function can also be run by hand.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from workers.trainer.session import (
    PreparedLoader,
    PreparedModel,
    PreparedOptimizer,
    PreparedScheduler,
    current,
)


def prepare_model(model: nn.Module) -> nn.Module:
    """Return a module to use in place of the model; its outputs are (F, N, ...) where trials are fused."""
    session = current()
    if session is None:
        return model
    prepared = PreparedModel(session, model)
    session.models.append(prepared)
    return prepared


def prepare_data_loader(loader: Any) -> Any:
    """Return the loader, on the run's device; its order depends on the study's seed and the pass only."""
    session = current()
    return loader if session is None else PreparedLoader(session, loader)


def prepare_optimizer(kind: type[Optimizer], model: nn.Module, **arguments: Any) -> Any:
    """Return an optimizer of this class; an argument may be a configuration's value of several trials."""
    session = current()
    if session is None:
        return kind(model.parameters(), **arguments)
    prepared = PreparedOptimizer(kind, arguments)
    session.optimizers.append(prepared)
    return prepared


def prepare_scheduler(kind: type[Any], optimizer: Any, **arguments: Any) -> Any:
    """Return a learning-rate scheduler of this class."""
    session = current()
    if session is None or not isinstance(optimizer, PreparedOptimizer):
        return kind(optimizer, **arguments)
    prepared = PreparedScheduler(kind, arguments)
    session.schedulers.append(prepared)
    return prepared


def losses(criterion: Callable[[Any, Any], Tensor], output: Any, target: Any) -> Tensor:
    """Return the loss of every trial as (F,); `criterion` is that of one trial, a mean over its batch."""
    session = current()
    return (
        criterion(output, target).reshape(1) if session is None else session.losses(criterion, output, target)
    )


def backward(losses: Tensor) -> None:
    """Backpropagate the sum of the trials' losses, so that each trains exactly as alone."""
    session = current()
    if session is None:
        losses.sum().backward()
    else:
        session.backward(losses)


def clip_grad_norm_(model: nn.Module, max_norm: float) -> None:
    """Clip the gradients of every trial to a norm of its own."""
    inner = model.inner if isinstance(model, PreparedModel) else model
    if hasattr(inner, "trials"):
        from tuning.core import hydro

        hydro.clip_grad_norm_(inner, max_norm)
    elif inner is not None:
        nn.utils.clip_grad_norm_(inner.parameters(), max_norm)


def report(metrics: Mapping[str, Any]) -> None:
    """Report the metrics of an epoch: each a number, or one number per trial.

    Leaves the training function where the epoch was the last one or all its trials were stopped.
    """
    session = current()
    if session is not None:
        session.report(metrics)
