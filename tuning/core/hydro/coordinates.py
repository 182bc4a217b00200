"""The coordinate check: do activations keep their size when the network gets wider, while it trains?

Yang et al., "Tensor Programs V" (arXiv 2203.03466), appendix D.1: train the same model at several widths for
a few steps and look at the mean absolute activation of every layer. Flat in width is right; growing means
that the best learning rate moves with width, vanishing that a layer stops learning.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from tuning.core.hydro.errors import HydroError
from tuning.core.hydro.groups import plain_optimizer
from tuning.core.hydro.layers import Attention, FunctionalBatchNorm, Scale
from tuning.core.hydro.rules import Scheme, rules_of
from tuning.core.hydro.surrogate import quietly_shrink
from tuning.core.hydro.tracing import Spec, TracedModule, operation_of
from tuning.core.hydro.tracing.structure import placeholder_values

if TYPE_CHECKING:  # a check in a device's process needs neither tables nor charts
    import pandas as pd
    import plotly.graph_objects as go

LEARNING_RATES = {"sgd": 0.1, "adam": 0.001, "adamw": 0.001}
"""Small enough that a few steps move every layer in proportion: a wrong factor is not lost in chaos."""

_PRODUCTS = frozenset(
    {"linear", "addmm", "baddbmm", "matmul", "bmm", "mm", "einsum", "conv1d", "conv2d", "conv3d"}
)

_MAY_VANISH = (" (logits)", " (tied)")
"""Ends the names of layers that start at random where others start at zero."""

Loss = Callable[[Any], Tensor]
Row = dict[str, Any]

CONFIRMING = 4
"""A layer that fails is looked at with this many times the seeds before it is called wrong: at a width of
four, one channel with an unlucky kernel lets BatchNorm's output move ten times as far as it should."""


@dataclass(frozen=True)
class CoordinateReport:
    """Mean absolute activations over widths and steps, and the verdict.

    ``rows`` has one entry per layer, scaling and step: ``l1`` is the mean absolute activation and ``change``
    that of its difference from the start, for the same batch, medians over seeds. ``slopes`` gives for each
    layer the exponent with which the change grows with width (0 is flat), ``start_slopes`` that of the
    start's activation. ``seeds`` is how many initialisations the verdict rests on.
    """

    rows: list[Row]
    slopes: dict[str, float]
    start_slopes: dict[str, float]
    growing: list[str]
    vanishing: list[str]
    seeds: int

    @property
    def passed(self) -> bool:
        """Whether every activation is finite, bounded and flat."""
        return not self.growing and not self.vanishing

    @cached_property
    def table(self) -> "pd.DataFrame":
        """``rows`` as a data frame: columns ``layer, scaling, step, l1, change``."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def figure(self) -> "go.Figure":
        """Activation against width, one line per layer, one panel for the start and one for the last step."""
        from tuning.core.hydro.figures import coordinate_figure

        return coordinate_figure(self.table, self.passed)

    def summary(self) -> str:
        """One sentence for people."""
        if self.passed:
            return "activations stay the same over widths"
        parts = [("grow", self.growing), ("vanish", self.vanishing)]
        return "; ".join(f"{', '.join(names[:4])} {verb} with width" for verb, names in parts if names)


def coordinate_check(
    model: nn.Module,
    example_inputs: Any,
    scalings: Sequence[float] = (1, 2, 4, 8),
    optimizer: str = "adam",
    *,
    parametrization: Scheme = "mup",
    lr: float | None = None,
    steps: int = 4,
    seeds: int = 3,
    loss: Loss | None = None,
    tolerance: float = 0.4,
    min_width: int = 1,
) -> CoordinateReport:
    """Train surrogates of ``model`` for a few steps on the example batch and compare their activations.

    ``loss`` maps the model's output to a scalar; by default it is the output's own loss if it has one, or the
    squared distance to fixed random targets. A layer fails where its activation at the start, or the change
    of it, grows or vanishes faster than width to the power ``tolerance``. Attention logits and tied heads may
    vanish like the root of width: they start at random and cannot start at zero. Where a layer fails, the
    check is repeated with ``CONFIRMING`` times the seeds, and that is the answer.
    """
    if len(set(scalings)) < 2:
        raise HydroError("coordinate_check compares widths: give at least two different scalings")
    values = placeholder_values(model, example_inputs)

    def run(scaling: float, seed: int, rate: float) -> _Run:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            surrogate = quietly_shrink(
                model, example_inputs, scaling=scaling, optimizer=optimizer, parametrization=parametrization,
                min_width=min_width,
            )  # fmt: skip
            return _trained(surrogate, values, optimizer, rate, steps, loss or default_loss)

    rate = _stable_rate(lambda rate: run(max(scalings), 0, rate), optimizer) if lr is None else lr
    seen: dict[float, list[_Run]] = {float(scaling): [] for scaling in scalings}

    def judged(count: int) -> CoordinateReport:
        for scaling, runs in seen.items():
            runs += [run(scaling, seed, rate) for seed in range(len(runs), count)]
        return _judged(seen, tolerance)

    report = judged(seeds)
    return report if report.passed else judged(CONFIRMING * seeds)


@dataclass(frozen=True)
class _Run:
    """What one short training showed, and the loss before every step.

    ``activations`` holds (step, layer, mean |activation|, mean |activation - activation at the start|).
    """

    activations: list[tuple[int, str, float, float]]
    losses: list[float]


def _stable_rate(run: Callable[[float], _Run], optimizer: str) -> float:
    """The largest of a few learning rates under which the narrowest surrogate does not diverge."""
    rate = LEARNING_RATES[optimizer]
    for _ in range(6):
        losses = run(rate).losses
        if all(np.isfinite(losses)) and losses[-1] <= losses[0]:
            break
        rate /= 4
    return rate


def default_loss(output: Any) -> Tensor:
    """A scalar to train on when nobody says which: the output's own loss, or a distance to fixed targets."""
    tensors: list[Tensor] = []
    _collect(output, tensors)
    own = [tensor for tensor in tensors if tensor.dim() == 0 and tensor.requires_grad]
    if own:
        return own[0]
    total = torch.zeros(())
    for index, tensor in enumerate(tensor for tensor in tensors if tensor.requires_grad):
        generator = torch.Generator().manual_seed(index)
        target = torch.randn(tensor.shape, generator=generator).to(tensor)
        total = total.to(tensor.device) + (tensor - target).square().mean()
    return total


def _collect(value: Any, tensors: list[Tensor]) -> None:
    if isinstance(value, Tensor) and value.is_floating_point():
        tensors.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, tensors)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, tensors)


def _trained(
    surrogate: TracedModule, values: list[Any], optimizer: str, lr: float, steps: int, loss: Loss
) -> _Run:
    _without_dropout(surrogate)
    stepper = plain_optimizer(surrogate, optimizer, lr)
    probe = _Probe(surrogate)
    run, start = _Run([], []), {}
    for step in range(steps + 1):
        stepper.zero_grad()
        value = loss(probe.run(*values))
        if step == 0:
            start = dict(probe.seen)
        for layer, now in probe.seen.items():
            change = float((now - start[layer]).abs().mean())
            run.activations.append((step, layer, float(now.abs().mean()), change))
        run.losses.append(float(value.detach()))
        value.backward()
        stepper.step()
    return run


def _without_dropout(surrogate: nn.Module) -> None:
    """Training mode for the layers with batch statistics only: masks would hide small changes."""
    surrogate.eval()
    for layer in surrogate.modules():
        if isinstance(layer, (nn.modules.batchnorm._NormBase, FunctionalBatchNorm)):
            layer.train()


class _Probe(fx.Interpreter):
    """Runs a surrogate and notes the mean absolute value of what its weights and attention produce."""

    def __init__(self, surrogate: TracedModule) -> None:
        super().__init__(surrogate)
        self.layers = dict(surrogate.named_modules())
        self.seen: dict[str, Tensor] = {}
        rules = rules_of(surrogate) or {}
        self.tied = {id(p) for name, p in surrogate.named_parameters() if rules[name].role == "tied"}
        self.labels: dict[fx.Node, str | None] = {}
        for node in surrogate.graph.nodes:
            self.labels[node] = self._label(node)

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        label = self.labels[n]
        if label is not None:
            tensor = result[0] if isinstance(result, tuple) else result
            self.seen[label] = tensor.detach().clone()
        return result

    def _label(self, node: fx.Node) -> str | None:
        spec = node.meta.get("spec")
        spec = spec[0] if isinstance(spec, tuple) and spec else spec
        if not isinstance(spec, Spec) or not spec.dtype.is_floating_point:
            return None
        if node.op == "call_module":
            layer = self.layers[str(node.target)]
            if isinstance(layer, Scale):
                # A factor after a product belongs to it: what counts is the scaled result.
                return self.labels.get(node.all_input_nodes[0]) if layer.reason != "output" else None
            weighted = next(layer.parameters(), None) is not None or isinstance(layer, Attention)
            tied = any(id(parameter) in self.tied for parameter in layer.parameters())
            return f"{node.target}{' (tied)' if tied else ''}" if weighted else None
        if node.op in ("call_function", "call_method") and operation_of(node) in _PRODUCTS:
            plain = all(part.op != "get_attr" for part in node.all_input_nodes)
            return f"{node.meta.get('owner') or 'model'}:{node.name}{' (logits)' if plain else ''}"
        return None


def _judged(seen: dict[float, list[_Run]], tolerance: float) -> CoordinateReport:
    rows = [row for scaling, runs in seen.items() for row in _medians(scaling, runs)]
    layers = dict.fromkeys(row["layer"] for row in rows)
    steps = sorted({row["step"] for row in rows})
    curves = {(layer, step): [row for row in rows if row["layer"] == layer and row["step"] == step]
              for layer in layers for step in steps}  # fmt: skip
    start = {layer: _slope(curves[layer, 0], "l1") for layer in layers}
    # An output that starts at zero lets gradients through from the second step on. The median over steps is
    # robust against the noise of narrow widths.
    slopes = {
        layer: float(np.median([_slope(curves[layer, step], "change") for step in steps if step > 1]))
        for layer in layers
    }
    growing, vanishing = [], []
    for layer, slope in slopes.items():
        lowest = -tolerance - (0.5 if layer.endswith(_MAY_VANISH) else 0.0)
        if max(slope, start[layer]) > tolerance:
            growing.append(layer)
        elif min(slope, start[layer]) < lowest:
            vanishing.append(layer)
    seeds = max(len(runs) for runs in seen.values())
    return CoordinateReport(rows, slopes, start, growing, vanishing, seeds)


def _medians(scaling: float, runs: list[_Run]) -> Iterable[Row]:
    """Rows of one width: medians over seeds, and not a number where any seed diverged."""
    for parts in zip(*(run.activations for run in runs), strict=True):
        step, layer, _, _ = parts[0]
        l1, change = np.array([part[2:] for part in parts]).T
        yield {
            "layer": layer,
            "scaling": scaling,
            "step": step,
            "l1": _median(l1),
            "change": _median(change),
        }


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if np.isfinite(values).all() else float("nan")


def _slope(rows: list[Row], column: str) -> float:
    """The exponent of a column over width, from a line through the logarithms; infinite where it diverged."""
    values = np.array([row[column] for row in rows])
    if not np.isfinite(values).all():
        return float("inf")
    if (values <= 0).any():
        return 0.0
    return float(np.polyfit(-np.log2([row["scaling"] for row in rows]), np.log2(values), 1)[0])
