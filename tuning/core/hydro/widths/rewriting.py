"""Writing the new sizes into calls that spell sizes out: views, expansions, new tensors."""

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import fx

from tuning.core.hydro.tracing import Spec, operation_of
from tuning.core.hydro.widths.atoms import Dim, is_fixed, leaves
from tuning.core.hydro.widths.sizes import Sizes

if TYPE_CHECKING:
    from tuning.core.hydro.widths.analysis import Analysis


def set_sizes(a: "Analysis", node: fx.Node, at: int, dims: list[Dim]) -> None:
    """Note that the size arguments of ``node`` from position ``at`` are the sizes of ``dims``."""

    def rewrite(sizes: Sizes) -> None:
        spread = len(node.args) > at and not isinstance(node.args[at], (tuple, list))
        key = next((name for name in ("size", "shape", "sizes", "repeats") if name in node.kwargs), None)
        given: Any = node.kwargs[key] if key else node.args[at:] if spread else node.args[at]
        new = _arguments(a, node, list(given), dims, sizes)
        if key:
            node.kwargs = {**node.kwargs, key: tuple(new)}
        elif spread:
            node.args = (*node.args[:at], *new)
        else:
            node.args = (*node.args[:at], tuple(new), *node.args[at + 1 :])

    a.rewrites.append(rewrite)


def _arguments(a: "Analysis", node: fx.Node, given: list[Any], dims: list[Dim], sizes: Sizes) -> list[Any]:
    new: list[Any] = []
    for size, dim in zip(given, dims, strict=True):
        tainted = isinstance(size, fx.Node) and _reads_width(a, size)
        if size == -1 or (not tainted and not sizes.changes(dim)):
            new.append(size)
        elif not isinstance(size, fx.Node) or not _has_data(dim):
            new.append(sizes.new(dim))
        elif tainted:
            new.append(-1 if -1 not in new and -1 not in given else sizes.new(dim))
        else:
            new.append(_rescaled(node, size, dim, sizes))
    return new


def _rescaled(node: fx.Node, size: fx.Node, dim: Dim, sizes: Sizes) -> fx.Node:
    """A size that is data x width: exact in integers, for any batch."""
    old = new = 1
    for atom in leaves(dim):
        if not atom.fixed:
            old *= atom.size
            new *= sizes.new(((atom,),))
    graph = node.graph
    with graph.inserting_before(node):
        return _call(graph, operator.floordiv, _call(graph, operator.mul, size, new), old)


def _call(graph: fx.Graph, function: Callable[[int, int], int], left: fx.Node, right: int) -> fx.Node:
    node = graph.call_function(function, (left, right))
    node.meta["spec"] = function(int(left.meta["spec"]), right)
    node.meta["owner"] = left.meta.get("owner", "")
    return node


def _has_data(dim: Dim) -> bool:
    """Whether part of the dimension belongs to the data, such as a batch merged with heads."""
    return any(atom.fixed for atom in leaves(dim))


def _reads_width(a: "Analysis", size: fx.Node) -> bool:
    """Whether an integer node is computed from a dimension that shrinks."""
    if operation_of(size) == "size" and isinstance(size.args[0], fx.Node):
        axis = size.args[1] if len(size.args) > 1 else size.kwargs.get("dim")
        dims = a.values.get(size.args[0])
        return isinstance(dims, list) and isinstance(axis, int) and not is_fixed(dims[axis])
    if operation_of(size) == "numel":
        return True
    return any(
        _reads_width(a, part) for part in size.all_input_nodes if not isinstance(part.meta["spec"], Spec)
    )
