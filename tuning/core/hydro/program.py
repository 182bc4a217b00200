"""Compiling a model into the graph that runs F trials of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from tuning.core.hydro import families as families  # noqa: F401  (registers the rules)
from tuning.core.hydro.errors import FuseError, HydroError
from tuning.core.hydro.fused_graph import Fuser, Layout, Value
from tuning.core.hydro.in_place import reuse_memory
from tuning.core.hydro.nested import tensors_in
from tuning.core.hydro.random_streams import RandomStreams
from tuning.core.hydro.source import compiled


@dataclass(frozen=True)
class Program:
    """A compiled fused graph; independent of the number of trials and of their values.

    ``run(trials, streams, *tensors, *constants, *inputs)``, with the tensors in the order of ``names``.
    ``orders`` is the order of dimensions in memory that each stacked parameter is fastest in.
    """

    run: Callable[..., Any]
    code: str
    names: tuple[str, ...]
    constants: tuple[Tensor, ...]
    orders: Mapping[str, tuple[int, ...]]


def compile_program(
    traced: fx.GraphModule,
    tensors: Mapping[str, Tensor],
    shared_names: frozenset[str],
    aliases: dict[str, str],
    streams: RandomStreams,
    inputs: Sequence[Any],
    prefix: str = "",
    orders: Mapping[fx.Node, tuple[int, ...]] | None = None,
) -> Program:
    """Fuse a traced model in its present mode (training or evaluation).

    ``tensors`` are the stacked parameters and buffers by name, ``inputs`` one example per input of the graph,
    ``orders`` the memory order of the plain model's tensors at its dropout nodes.
    Nothing given is changed. Raises ``FuseError`` naming the node that cannot be fused.
    """
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    fuser = Fuser(traced, copies, shared_names, streams.select(range(len(streams))), aliases, prefix)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        constants = _constants(traced, fuser)
        result = _rewrite(traced, fuser, list(inputs), constants, orders or {})
    fuser.graph.output(_final(fuser, result))
    fuser.graph.eliminate_dead_code(lambda node: node.op != "call_function" or node.meta.get("writes", False))
    reuse_memory(fuser.graph)
    fuser.graph.lint()
    run, code = compiled(fuser.graph)
    values = tuple(constant.example for constant in constants.values())
    return Program(run, code, tuple(tensors), values, fuser.orders)


def _constants(traced: fx.GraphModule, fuser: Fuser) -> dict[str, Value]:
    names = dict.fromkeys(str(node.target) for node in traced.graph.nodes if node.op == "get_attr")
    return {
        name: fuser.constant(name, _attribute(traced, name)) for name in names if not fuser.has_tensor(name)
    }


def _rewrite(
    traced: fx.GraphModule,
    fuser: Fuser,
    inputs: list[Any],
    constants: dict[str, Value],
    orders: Mapping[fx.Node, tuple[int, ...]],
) -> Any:
    known: dict[fx.Node, Any] = {}
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            known[node] = fuser.input(str(node.target), inputs.pop(0))
    for node in traced.graph.nodes:
        if node.op == "output":
            return _resolved(node.args[0], known)
        if node.op == "get_attr":
            name = str(node.target)
            known[node] = constants[name] if name in constants else fuser.tensor(name)
        elif node.op != "placeholder":
            fuser.drawing_order = orders.get(node)
            known[node] = _fused(node, fuser, known)
    raise FuseError("the recorded graph has no output")


def _fused(node: fx.Node, fuser: Fuser, known: dict[fx.Node, Any]) -> Any:
    args, kwargs = _resolved(node.args, known), _resolved(node.kwargs, known)
    try:
        if node.op == "call_module":
            result = fuser.module(str(node.target), *args, **kwargs)
        else:
            function = node.target
            if node.op == "call_method":
                function = getattr(torch.Tensor, str(node.target))
            result = fuser.function(function, args, kwargs)
    except HydroError as error:
        raise FuseError(f"{_described(node)}: {error}") from error
    except Exception as error:
        raise FuseError(
            f"{_described(node)} cannot be fused ({type(error).__name__}: {str(error).splitlines()[0]}): "
            "replace it by supported layers, or train this model without fusion"
        ) from error
    if _writes_first_argument(node) and isinstance(node.args[0], fx.Node):
        known[node.args[0]] = result
    return result


def _described(node: fx.Node) -> str:
    owner = node.meta.get("owner") or ""
    what = f"layer '{node.target}'" if node.op == "call_module" else f"'{node.name}'"
    return f"{what} (in '{owner}')" if owner and owner != node.target else what


def _writes_first_argument(node: fx.Node) -> bool:
    """In-place functions return their first argument; later readers of it have to see what was written."""
    if node.op == "call_module":
        return False
    name = str(getattr(node.target, "__name__", node.target))
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name in ("iadd", "isub", "imul", "itruediv")


def _resolved(tree: Any, known: dict[fx.Node, Any]) -> Any:
    """The arguments with every traced node replaced by what it became."""
    if isinstance(tree, fx.Node):
        return known[tree]
    if isinstance(tree, list):
        return [_resolved(item, known) for item in tree]
    if isinstance(tree, tuple):
        items = [_resolved(item, known) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    if isinstance(tree, dict):
        return {key: _resolved(item, known) for key, item in tree.items()}
    if isinstance(tree, slice):
        return slice(*(_resolved(part, known) for part in (tree.start, tree.stop, tree.step)))
    return tree


def _final(fuser: Fuser, result: Any) -> Any:
    """The output with every tensor as ``(F, N, ...)``."""
    if isinstance(result, Value):
        if isinstance(result.example, Tensor):
            return fuser.first(result)
        if result.layout is Layout.SHARED or tensors_in(result.example):
            return result.node
        kind = type(result.example).__name__
        raise FuseError(f"the model returns a {kind} of each trial: return tensors")
    if isinstance(result, tuple | list):
        items = [_final(fuser, item) for item in result]
        return tuple(items) if isinstance(result, tuple) else items
    if isinstance(result, dict):
        return {key: _final(fuser, item) for key, item in result.items()}
    return result


def _attribute(module: fx.GraphModule, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value
