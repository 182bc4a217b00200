"""From a model to its surrogate: the same network, narrower, trained by the same hyperparameters."""

import math
import warnings
from dataclasses import replace
from typing import Any, get_args

import torch
from torch import fx, nn

from tuning.core.hydro.depth import Thinned, thin
from tuning.core.hydro.errors import HydroWarning, ShrinkError
from tuning.core.hydro.factors import insert_factors
from tuning.core.hydro.initialization import initialise, replaced_initialisation
from tuning.core.hydro.roles import Part, parts_of
from tuning.core.hydro.rules import Parametrization, Scheme, attach_parametrization, family_named
from tuning.core.hydro.surgery import assemble, narrow_hierarchy, narrow_tensors, rewrite_graph
from tuning.core.hydro.tracing import Spec, TracedModule, trace
from tuning.core.hydro.tracing.structure import placeholder_values
from tuning.core.hydro.widths import Analysis, Sizes
from tuning.core.hydro.widths.atoms import leaves


def shrink(
    model: nn.Module,
    example_inputs: Any,
    scaling: float = 8,
    optimizer: str = "adam",
    parametrization: Scheme = "mup",
    min_width: int = 4,
    *,
    depth_scaling: float = 1,
    pretrained: bool | None = None,
) -> TracedModule:
    """Build the surrogate of ``model``: every hidden width divided by ``scaling``, under muP.

    ``example_inputs`` is one batch: a tensor, a tuple of positional inputs or a dictionary of keyword inputs.
    ``scaling=1`` keeps the widths and applies the parametrization, so that a target and its surrogates share
    it. Widths that do not divide are rounded up, and factors follow the real ratio; input channels, classes,
    vocabulary and lengths stay. The result has the ``state_dict`` keys of ``model``, takes the inputs that
    the examples show, and carries one ``ParameterRule`` per parameter for ``hydro.optimizer``.

    ``optimizer`` is ``sgd``, ``adam`` or ``adamw``. ``parametrization`` is ``mup``, ``standard`` (a plain
    narrow model, for comparison) or ``hydro`` (the table of the Hydro paper, for comparison: its learning
    rate for hidden weights under SGD does not transfer). ``pretrained=True`` says that the weights were
    trained before, ``False`` that they were not whatever the model's name suggests.

    ``depth_scaling`` keeps one in so many of a stack of alike pre-norm residual blocks and multiplies their
    branches accordingly (CompleteP, arXiv 2505.01618); the blocks that go take their keys along.

    The weights are drawn anew from PyTorch's global random state; ``HydroWarning`` says whose values that
    replaces. Raises ``TraceError`` or ``ShrinkError`` naming the layer and what to do.
    """
    _check_request(scaling, optimizer, parametrization, min_width, depth_scaling)
    _refuse_pretrained(model, pretrained)
    traced = trace(model, example_inputs)
    thinned = thin(traced, depth_scaling)
    a = Analysis(traced).run()
    sizes = Sizes([dim for dim, _ in a.totals], float(scaling))
    _check_widths(a, sizes, scaling, min_width)
    parts = {name: part for name, part in parts_of(a).items() if not thinned.is_removed(name)}
    expected = {node: _new_shapes(value, sizes) for node, value in a.values.items()}
    surrogate = _build(a, parts, sizes, parametrization, thinned)
    rules = {
        name: replace(part.rule(sizes, parametrization), adam_eps=thinned.factor(name))
        for name, part in parts.items()
    }
    attach_parametrization(
        surrogate, Parametrization(rules, optimizer.lower(), parametrization, float(scaling))
    )
    _verify(surrogate, model, example_inputs, expected, a)
    _warn(a, parts, parametrization)
    return surrogate


def quietly_shrink(model: nn.Module, example_inputs: Any, **options: Any) -> TracedModule:
    """``shrink`` without its warnings, for checks that build many surrogates of a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HydroWarning)
        return shrink(model, example_inputs, **options)


def _build(
    a: Analysis, parts: dict[str, Part], sizes: Sizes, scheme: Scheme, thinned: Thinned
) -> TracedModule:
    root = narrow_hierarchy(a, sizes, narrow_tensors(a, sizes))
    for name in thinned.removed:
        owner, _, key = name.rpartition(".")
        del root.get_submodule(owner)._modules[key]
    rewrite_graph(a, sizes)
    insert_factors(a, parts, sizes, scheme, root)
    surrogate = assemble(a, root)
    initialise(a, parts, sizes, surrogate, scheme)
    return surrogate


def _check_request(scaling: Any, optimizer: Any, parametrization: Any, min_width: Any, depth: Any) -> None:
    for name, value in (("scaling", scaling), ("depth_scaling", depth)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value < math.inf:
            raise ShrinkError(
                f"{name} is {value!r}: give a number of at least 1 (8 divides every width by 8)"
            )
    if parametrization not in get_args(Scheme):
        raise ShrinkError(f"parametrization is {parametrization!r}: use one of {', '.join(get_args(Scheme))}")
    if isinstance(min_width, bool) or not isinstance(min_width, int) or min_width < 1:
        raise ShrinkError(f"min_width is {min_width!r}: give a whole number of at least 1")
    family_named(optimizer)


def _refuse_pretrained(model: nn.Module, pretrained: bool | None) -> None:
    if pretrained is None and isinstance(model, nn.Module):
        pretrained = any(_names_checkpoint(module) for module in model.modules())
    if pretrained:
        raise ShrinkError(
            "the model comes from a pretrained checkpoint, and a surrogate has no such start: width rules "
            "hold for training from scratch only. Build it from a configuration without a checkpoint's name, "
            "or pass pretrained=False if its weights are random"
        )


def _names_checkpoint(module: nn.Module) -> bool:
    name = getattr(module, "name_or_path", None)
    return getattr(module, "pretrained", None) is True or (isinstance(name, str) and name != "")


def _check_widths(a: Analysis, sizes: Sizes, scaling: float, min_width: int) -> None:
    for dim, layer in a.totals:
        old, new = sizes.old(dim), sizes.new(dim)
        # The floor is about features; one head or one group is a sound number of them.
        if new < min_width and sizes.changes(dim) and not all(atom.count for atom in leaves(dim)):
            kind = type(a.layers[layer]).__name__ if layer in a.layers else "weight"
            fits = f"at most {old // min_width}" if old >= min_width else "1"
            raise ShrinkError(
                f"layer '{layer}' ({kind}) would go from width {old} to {new}, below min_width {min_width}: "
                f"use scaling of {fits} or a smaller min_width"
            )
    if scaling > 1 and not any(sizes.changes(dim) for dim, _ in a.totals):
        raise ShrinkError(
            "no hidden width was found to shrink: every size is tied to the model's input or output. "
            "Use scaling=1 to apply the parametrization alone"
        )


def _new_shapes(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, list):
        return tuple(sizes.new(dim) for dim in value)
    return None


def _verify(
    surrogate: TracedModule, model: nn.Module, example_inputs: Any, expected: dict[fx.Node, Any], a: Analysis
) -> None:
    """Run the surrogate once on the examples, and refresh the recorded shapes."""
    modes = [(module, module.training) for module in surrogate.modules()]
    surrogate.eval()
    shapes = {node.name: shape for node, shape in expected.items()}
    try:
        with torch.no_grad(), torch.random.fork_rng():
            _Replay(surrogate, shapes, a).replay(model, example_inputs)
    finally:
        for module, mode in modes:
            module.training = mode


class _Replay(fx.Interpreter):
    """Runs a surrogate node by node and compares every shape with the analysis."""

    def __init__(self, surrogate: TracedModule, shapes: dict[str, Any], a: Analysis) -> None:
        super().__init__(surrogate)
        self.shapes = shapes
        self.analysis = a

    def replay(self, model: nn.Module, example_inputs: Any) -> None:
        self.run(*placeholder_values(model, example_inputs))

    def run_node(self, n: fx.Node) -> Any:
        try:
            result = super().run_node(n)
        except Exception as error:
            raise self.analysis.error(
                n, f"the narrow model fails here ({type(error).__name__}: {error})"
            ) from error
        if isinstance(result, torch.Tensor):
            wanted = self.shapes.get(n.name)
            if wanted is not None and tuple(result.shape) != wanted:
                raise self.analysis.error(n, f"gives shape {tuple(result.shape)} where {wanted} was derived")
            n.meta["spec"] = Spec(tuple(result.shape), result.dtype)
        return result


def _warn(a: Analysis, parts: dict[str, Part], scheme: Scheme) -> None:
    replaced = replaced_initialisation(a, parts)
    if replaced:
        names = ", ".join(replaced[:3]) + (f" and {len(replaced) - 3} more" if len(replaced) > 3 else "")
        start = "PyTorch's defaults" if scheme == "standard" else "the width rules"
        warnings.warn(
            f"the model's own initial values of {names} are replaced: {start} decide how a surrogate starts",
            HydroWarning,
            stacklevel=3,
        )
    if a.exposed:
        widths = ", ".join(str(size) for size in sorted({Sizes([], 1).old(dim) for dim in a.exposed}))
        warnings.warn(
            f"the model returns hidden features of width {widths}; they shrink with it",
            HydroWarning,
            stacklevel=3,
        )
