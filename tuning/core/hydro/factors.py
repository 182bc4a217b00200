"""Putting a parametrization's constant factors into the graph: ``Scale`` layers and attention scales."""

from math import sqrt
from typing import Any

from torch import fx, nn

from tuning.core.hydro.layers import Attention, Scale
from tuning.core.hydro.roles import Part, output_nodes
from tuning.core.hydro.rules import Scheme
from tuning.core.hydro.widths import Analysis, Sizes


def insert_factors(
    a: Analysis, parts: dict[str, Part], sizes: Sizes, scheme: Scheme, root: nn.Module
) -> None:
    """Insert output multipliers, attention's 1/d and the factors of sums over a width; 1 is left out."""
    insert = _Inserter(a, root)
    if scheme != "standard":
        for node, dim in output_nodes(parts, a).items():
            insert.before(node, _activation(a, node), sizes.ratio(dim), "output")
    for correction in a.corrections:
        ratio = sizes.ratio(correction.dim)
        if scheme != "standard":
            insert.after(correction.node, ratio**correction.power, correction.reason)
        elif correction.reason == "attention":
            # The recorded 1/sqrt(d) belongs to the target's head size; a plain narrow model has its own.
            insert.after(correction.node, sqrt(ratio), correction.reason)
    for node, head_size, base in a.logits:
        _scale_logits(a, insert, node, sizes.ratio(head_size), base, scheme)


def _scale_logits(
    a: Analysis, insert: "_Inserter", node: fx.Node, ratio: float, base: float, scheme: Scheme
) -> None:
    layer = insert.root.get_submodule(str(node.target))
    if ratio == 1.0:
        return
    if not isinstance(layer, Attention):
        if scheme != "standard":
            # The layer divides by the root of its own head size; muP wants the target's root over its own.
            insert.before(node, _query(node), sqrt(ratio), "attention")
    elif scheme != "standard":
        layer.scale = base * ratio
    elif layer.scale is not None:
        layer.scale = base * sqrt(ratio)


def _activation(a: Analysis, node: fx.Node) -> fx.Node:
    """The operand of an output layer that is not its weight or bias."""
    if node.op == "call_module":
        return _query(node)
    return next(part for part in node.all_input_nodes if a.origins(part) is None)


def _query(node: fx.Node) -> fx.Node:
    first = node.args[0] if node.args else node.kwargs.get("input", node.kwargs.get("query"))
    assert isinstance(first, fx.Node)
    return first


class _Inserter:
    """Adds ``Scale`` layers to a graph."""

    def __init__(self, a: Analysis, root: nn.Module) -> None:
        self.a = a
        self.root = root
        self.graph = a.traced.graph
        self.count = 0

    def before(self, node: fx.Node, source: fx.Node, factor: float, reason: str) -> None:
        """Scale one operand of ``node``; where a tensor enters twice, its first place only."""
        if factor == 1.0:
            return
        with self.graph.inserting_before(node):
            scaled = self._scale(source, factor, reason, node)
        first = True

        def change(value: Any) -> Any:
            nonlocal first
            if value is source and first:
                first = False
                return scaled
            return value

        node.args = tuple(change(arg) for arg in node.args)
        if first:
            node.kwargs = {key: change(arg) for key, arg in node.kwargs.items()}

    def after(self, node: fx.Node, factor: float, reason: str) -> None:
        """Scale the result of ``node`` for all who use it."""
        if factor == 1.0:
            return
        with self.graph.inserting_after(node):
            scaled = self._scale(node, factor, reason, node)
        node.replace_all_uses_with(scaled, delete_user_cb=lambda user: user is not scaled)

    def _scale(self, source: fx.Node, factor: float, reason: str, near: fx.Node) -> fx.Node:
        name = f"_scale_{self.count}"
        self.count += 1
        self.root._modules[name] = Scale(factor, reason)
        node = self.graph.create_node("call_module", name, (source,))
        node.meta = {"owner": near.meta.get("owner", ""), "spec": source.meta.get("spec")}
        return node
