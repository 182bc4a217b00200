"""Recording a model as a graph of layers and functions, by running it once on example inputs."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn

from tuning.core.hydro.errors import HydroError, TraceError
from tuning.core.hydro.rules import attach_parametrization, parametrization_of
from tuning.core.hydro.tracing.canonical import arguments_of, canonicalise, operation_of
from tuning.core.hydro.tracing.module import TracedModule, skeleton_of
from tuning.core.hydro.tracing.recorder import Recorder, Spec
from tuning.core.hydro.tracing.structure import (
    add_placeholders,
    bind_examples,
    check_examples,
    output_argument,
)

__all__ = ["Spec", "TracedModule", "arguments_of", "drop_unused", "operation_of", "trace"]


def trace(model: nn.Module, example_inputs: Any) -> TracedModule:
    """Record ``model`` as a ``TracedModule`` that shares its parameters, buffers and layers.

    ``example_inputs`` is one batch: a tensor, a tuple of positional inputs or a dictionary of keyword inputs.
    The graph takes the branches that this batch takes; batch size and lengths stay free. Functions become
    layers where a layer exists, and the model runs twice, in training and in evaluation mode, so that what
    differs between the two is found. No statistics, weights or random states change.

    Raises ``TraceError`` naming the layer or input that cannot be recorded.
    """
    if not isinstance(model, nn.Module):
        raise TraceError(f"model is a {type(model).__name__}: give a torch.nn.Module")
    bound = bind_examples(model, example_inputs)
    check_examples(model, bound)
    with _untouched(model):
        training = _record(model, bound, training=True)
        evaluation = _record(model, bound, training=False, whole=frozenset(training.whole))
    graph = training.graph
    layers = canonicalise(model, graph, evaluation.graph)
    drop_unused(graph)
    root = skeleton_of(model)
    for name, module in {**training.extra_modules, **layers}.items():
        if any(node.target == name for node in graph.nodes):
            root._modules[name] = module
            module.train(model.training)
    for name, tensor in training.constants.items():
        if any(node.target == name for node in graph.nodes):
            root.register_buffer(name, tensor, persistent=False)
    traced = TracedModule(root, graph, type(model).__name__)
    found = parametrization_of(model)
    if found is not None:
        attach_parametrization(traced, found)
    return traced


def _record(model: nn.Module, bound: Any, *, training: bool, whole: frozenset[str] = frozenset()) -> Recorder:
    model.train(training)
    recorder = Recorder(model, fx.Graph(), whole)
    with recorder.paused():
        add_placeholders(recorder, model, bound)
    try:
        with recorder.running():
            result = model(*bound.args, **bound.kwargs)
    except HydroError:
        raise
    except Exception as error:
        where = recorder.last_owner or type(model).__name__
        raise TraceError(
            f"the forward pass fails on example_inputs in '{where}': {type(error).__name__}: {error}"
        ) from error
    recorder.graph.output(output_argument(recorder, result))
    return recorder


@contextlib.contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Run the model without lasting effect: modes, buffers, random state, caches and fast paths."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    config = getattr(model, "config", None)
    cache = getattr(config, "use_cache", None)
    fastpath = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    if cache:
        config.use_cache = False  # type: ignore[union-attr]
    try:
        with torch.random.fork_rng(), torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
        if cache:
            config.use_cache = cache  # type: ignore[union-attr]
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def drop_unused(graph: fx.Graph) -> None:
    """Remove calls that nothing uses, except of layers and of functions that change a tensor in place."""
    for node in reversed(list(graph.nodes)):
        in_place = operation_of(node).endswith("_") or operation_of(node) == "setitem"
        if node.op not in ("placeholder", "output", "call_module") and not node.users and not in_place:
            graph.erase_node(node)
