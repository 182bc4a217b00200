"""Activations written over their input where autograd does not need it any more."""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from tuning.core.hydro.families import overwritable
from tuning.core.hydro.families.dropout import masked
from tuning.core.hydro.families.linear import unrowed

_IN_PLACE: dict[Any, Any] = {
    F.relu: torch.relu_,
    torch.relu: torch.relu_,
    torch.tanh: torch.tanh_,
    torch.sigmoid: torch.sigmoid_,
    torch.add: torch.Tensor.add_,
    operator.add: torch.Tensor.add_,
    masked: torch.Tensor.mul_,
}
"""Operations whose gradient needs their output at most, to their in-place form."""

_UNARY = (torch.relu_, torch.tanh_, torch.sigmoid_)


def reuse_memory(graph: fx.Graph) -> None:
    """Let an operation overwrite its first operand where nothing else reads it.

    The operand has to come from a function in ``overwritable``: it returns fresh memory and does not keep its
    result for the backward pass.
    """
    for node in graph.nodes:
        _before_view(node)
    for node in graph.nodes:
        if node.op != "call_function" or node.target not in _IN_PLACE or not node.args:
            continue
        operand = node.args[0]
        if not isinstance(operand, fx.Node) or operand.target not in overwritable:
            continue
        if len(operand.users) == 1 and _same_form(operand, node) and node.args.count(operand) == 1:
            node.target = _IN_PLACE[node.target]
            node.kwargs = {key: value for key, value in node.kwargs.items() if key != "inplace"}
            if node.target in _UNARY:
                node.args = node.args[:1]


def _before_view(node: fx.Node) -> None:
    """Move an activation of a product's view to the product itself."""
    if node.op != "call_function" or _IN_PLACE.get(node.target) not in _UNARY or not node.args:
        return
    view = node.args[0]
    if not isinstance(view, fx.Node) or view.target is not unrowed or len(view.users) != 1:
        return
    rows, like = view.args
    if isinstance(rows, fx.Node) and len(rows.users) == 1:
        # The two nodes change places by changing what they call.
        example = rows.meta["example"]
        view.target, view.args, view.kwargs = node.target, (rows,), {}
        node.target, node.args, node.kwargs = unrowed, (view, like), {}
        view.meta["example"] = example


def _same_form(operand: fx.Node, node: fx.Node) -> bool:
    before, after = operand.meta["example"], node.meta["example"]
    return bool(before.shape == after.shape and before.dtype == after.dtype)
