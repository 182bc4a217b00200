"""What each parameter is to the network, found by data flow: input, hidden, output, tied, vector."""

from dataclasses import dataclass
from typing import cast

from torch import fx

from tuning.core.hydro.rules import ParameterRule, Role, Scheme, rule_for
from tuning.core.hydro.widths import Analysis, Dim, Sizes, Use, is_width, size_of
from tuning.core.hydro.widths.atoms import ONE, leaves


@dataclass(frozen=True)
class Part:
    """A parameter's role, the dimensions that decide its factors, and the use that decides its scale.

    ``last`` marks an output layer whose result reaches the model's output past no other weight.
    """

    role: Role
    read: Dim
    write: Dim
    use: Use | None
    last: bool = False

    def rule(self, sizes: Sizes, scheme: Scheme) -> ParameterRule:
        """The learning-rate factors under these sizes."""
        return rule_for(self.role, sizes.ratio(self.read), sizes.ratio(self.write), scheme)


def parts_of(a: Analysis) -> dict[str, Part]:
    """The role of every parameter, by the first of its names."""
    by_name: dict[str, list[Use]] = {name: [] for name in a.tensors if name in a.parameters}
    for use in a.uses:
        by_name[use.parameter].append(use)
    weighted = {use.node for use in a.uses if use.kind in ("matrix", "lookup")}
    return {name: _part(a, name, uses, weighted) for name, uses in by_name.items()}


def output_nodes(parts: dict[str, Part], a: Analysis) -> dict[fx.Node, Dim]:
    """The nodes that apply an output weight, with the width that they sum over: where the multiplier goes."""
    found: dict[fx.Node, Dim] = {}
    for use in a.uses:
        if parts[use.parameter].role in ("output", "tied") and _role_of(use) == "output":
            found[use.node] = use.fan_in
    return found


def _part(a: Analysis, name: str, uses: list[Use], weighted: set[fx.Node]) -> Part:
    matrices = [use for use in uses if use.kind == "matrix"]
    lookups = [use for use in uses if use.kind == "lookup"]
    outputs = [use for use in matrices if _role_of(use) == "output"]
    inputs = [*lookups, *(use for use in matrices if _role_of(use) == "input")]
    if outputs and inputs:
        return Part("tied", outputs[0].fan_in, inputs[0].fan_out, outputs[0])
    if matrices:
        first = matrices[0]
        last = any(_is_last(use.node, weighted) for use in outputs)
        return Part(cast(Role, _role_of(first)), first.fan_in, first.fan_out, first, last)
    if lookups:
        return Part(
            "embedding" if is_width(lookups[0].fan_out) else "fixed", ONE, lookups[0].fan_out, lookups[0]
        )
    if uses:
        return Part(cast(Role, uses[0].kind), ONE, uses[0].fan_out, uses[0])
    widths = [dim for dim in a.dims_of(name) if is_width(dim)]
    return Part("vector" if widths else "fixed", ONE, max(widths, key=size_of, default=ONE), None)


def _role_of(use: Use) -> str:
    reads, writes = is_width(use.fan_in), is_width(use.fan_out)
    if reads:
        return "hidden" if writes else "output"
    return "input" if writes else "fixed"


def _is_last(node: fx.Node, weighted: set[fx.Node]) -> bool:
    """Whether the node's result reaches the output without passing another weight matrix."""
    seen: set[fx.Node] = set()
    open_nodes = list(node.users)
    while open_nodes:
        current = open_nodes.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.op == "output":
            return True
        if current not in weighted:
            open_nodes.extend(current.users)
    return False


def shares_width(dim: Dim, other: Dim) -> bool:
    """Whether two dimensions have an atom in common."""
    return bool({id(atom) for atom in leaves(dim)} & {id(atom) for atom in leaves(other)})
