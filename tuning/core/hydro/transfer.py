"""The transfer report: what to look at before an expensive search on surrogates is allowed to start."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from tuning.core.hydro.coordinates import CoordinateReport, coordinate_check
from tuning.core.hydro.errors import HydroError
from tuning.core.hydro.groups import plain_optimizer
from tuning.core.hydro.rules import Scheme, family_named
from tuning.core.hydro.surrogate import quietly_shrink
from tuning.core.transfer import spearman

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

LEARNING_RATES = {
    "sgd": tuple(2.0**-k for k in range(9, 0, -1)),
    "adam": tuple(2.0**-k for k in range(13, 4, -1)),
}
"""A default grid per optimizer family: from far too small to at the edge of divergence."""


@dataclass(frozen=True)
class TransferReport:
    """Whether hyperparameters found at one width should hold at another.

    ``correlation`` is Spearman's rank correlation of the learning rates' final losses at the two widths,
    ``best`` the best learning rate at each of them. ``rows`` has an entry per learning rate and scaling
    (``lr, scaling, loss``; infinite where training diverged).
    """

    coordinates: CoordinateReport
    correlation: float
    best: dict[float, float]
    rows: list[dict[str, float]]
    threshold: float

    @cached_property
    def table(self) -> "pd.DataFrame":
        """``rows`` as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def passed(self) -> bool:
        """Both checks hold: activations flat over widths, rankings alike."""
        return self.coordinates.passed and self.correlation >= self.threshold

    @property
    def figure(self) -> "go.Figure":
        """Final loss against learning rate, one line per width; ``coordinates.figure`` is the other chart."""
        from tuning.core.hydro.figures import transfer_figure

        return transfer_figure(self.table, self.correlation)

    def summary(self) -> str:
        """One sentence for people."""
        ranking = f"learning rates rank alike at two widths (Spearman {self.correlation:.2f})"
        if self.correlation < self.threshold:
            ranking = f"learning rates rank differently at two widths (Spearman {self.correlation:.2f})"
        return f"{self.coordinates.summary()}; {ranking}"


def transfer_report(
    model: nn.Module,
    batches: Sequence[tuple[Any, Any]],
    loss: Callable[[Any, Any], Tensor],
    optimizer: str = "adam",
    *,
    scalings: tuple[float, float] = (16, 8),
    learning_rates: Iterable[float] | None = None,
    steps: int = 60,
    parametrization: Scheme = "mup",
    coordinate_scalings: Sequence[float] = (2, 4, 8),
    threshold: float = 0.8,
    min_width: int = 1,
    seed: int = 0,
    **settings: Any,
) -> TransferReport:
    """Check the activations of ``model`` over widths, and rank learning rates at two narrow widths.

    ``batches`` are (inputs, target) pairs, cycled for ``steps`` steps; ``loss(output, target)`` is a scalar.
    ``settings`` go to the optimizer (``momentum``, ``betas``). Only surrogates are trained, so that the cost
    is that of a few narrow runs: one per learning rate and width.
    """
    if len(set(scalings)) != 2:
        raise HydroError("transfer_report compares two widths: give two different scalings")
    if not batches:
        raise HydroError("transfer_report needs at least one batch of (inputs, target)")
    inputs, target = batches[0]
    coordinates = coordinate_check(
        model, inputs, coordinate_scalings, optimizer, parametrization=parametrization, min_width=min_width,
        loss=lambda output: loss(output, target),
    )  # fmt: skip
    rates = list(learning_rates or LEARNING_RATES[family_named(optimizer)])
    rows = []
    for scaling in scalings:
        for rate in rates:
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                surrogate = quietly_shrink(
                    model, inputs, scaling=scaling, optimizer=optimizer, parametrization=parametrization,
                    min_width=min_width,
                )  # fmt: skip
                stepper = plain_optimizer(surrogate, optimizer, rate, **settings)
                value = final_loss(surrogate, stepper, batches, loss, steps)
                rows.append({"lr": rate, "scaling": float(scaling), "loss": value})
    losses = {float(s): [row["loss"] for row in rows if row["scaling"] == s] for s in scalings}
    best = {scaling: rates[int(np.argmin(values))] for scaling, values in losses.items()}
    # a ranking in which nothing differs says nothing
    correlation = spearman(*losses.values()) or 0.0
    return TransferReport(coordinates, correlation, best, rows, threshold)


def final_loss(
    surrogate: nn.Module,
    stepper: torch.optim.Optimizer,
    batches: Sequence[tuple[Any, Any]],
    loss: Callable[[Any, Any], Tensor],
    steps: int,
) -> float:
    """Mean training loss over the last tenth of ``steps``; infinite where training diverged."""
    surrogate.train()
    losses: list[float] = []
    for step in range(steps):
        inputs, target = batches[step % len(batches)]
        stepper.zero_grad()
        value = loss(_called(surrogate, inputs), target)
        losses.append(float(value.detach()))
        if not math.isfinite(losses[-1]):
            return math.inf
        value.backward()
        stepper.step()
    return float(np.mean(losses[-max(1, steps // 10) :]))


def _called(module: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, (tuple, list)) else module(inputs)
