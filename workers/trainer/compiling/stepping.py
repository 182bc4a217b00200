"""Where ensembles make their training steps: eagerly, or through what may compile them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from tuning.core.study.events import CompileDecided
from workers.trainer.batches import batch_bounds
from workers.trainer.compiling.lazy import LazyStep
from workers.trainer.orders import ContainerOrder, Reporter, TargetOrder
from workers.trainer.recipe import Recipe


def make_step(
    lazy: LazyStep | None,
    model: nn.Module,
    inputs: Any,
    gradients: Callable[[Callable[..., Any]], Tensor],
    update: Callable[[], None],
) -> Tensor:
    """Make one training step and return its loss.

    `gradients` runs the forward that it is given and the backward pass, `update` the optimizer.
    """
    if lazy is not None:
        return lazy.step(inputs, gradients, update)
    loss = gradients(model)
    update()
    return loss


@dataclass(frozen=True)
class Compilable:
    """The model whose steps an ensemble makes, and what its batches are."""

    title: str
    model: nn.Module
    batch_size: int
    fold_single: bool


class Ensemble(Protocol):
    """What can have its steps compiled; see `SoloEnsemble` and `FusedEnsemble`."""

    recipe: Recipe
    lazy: LazyStep | None

    def compilable(self) -> Compilable | None:
        """Return the one model that all steps are made with; None where there is none, or none to compile."""


def compile_lazily(
    ensemble: Ensemble, order: ContainerOrder | TargetOrder, epochs: int, report: Reporter
) -> None:
    """Let an ensemble's steps be compiled where its order allows it and it pays; `epochs` are left of it."""
    found = ensemble.compilable() if order.compiling is not None else None
    if order.compiling is None or found is None:
        return
    data = ensemble.recipe.data.train
    bounds = batch_bounds(len(data), found.batch_size, found.fold_single)
    ensemble.lazy = LazyStep(
        found.model,
        "target" if isinstance(order, TargetOrder) else found.title,
        ensemble.recipe.device,
        found.batch_size,
        epochs * sum(end - start == found.batch_size for start, end in bounds),
        order.compiling,
        lambda decision, seconds: report(CompileDecided(order.run, decision, seconds)),
    )
