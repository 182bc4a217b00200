"""Fewer residual blocks in a surrogate, by CompleteP's depth rule.

Dey et al., "Don't be lazy: CompleteP enables compute-efficient deep transformers" (arXiv 2505.01618, table 1,
alpha = 1): a residual branch is multiplied by 1 / L relative to a base depth, learning rates stay, and Adam's
epsilon for weights inside blocks follows the branch. The target is the base here, so that a surrogate with L'
of L blocks multiplies its branches by L / L'. Derived for pre-norm blocks, and offered for those alone.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

from torch import fx, nn

from tuning.core.hydro.errors import ShrinkError
from tuning.core.hydro.layers import Scale
from tuning.core.hydro.tracing import Spec, TracedModule, drop_unused, operation_of

_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


@dataclass(frozen=True)
class Thinned:
    """What depth scaling did: which blocks are gone, which are kept, and the factor on their branches."""

    removed: tuple[str, ...] = ()
    kept: dict[str, float] | None = None

    def is_removed(self, parameter: str) -> bool:
        return parameter.startswith(tuple(f"{prefix}." for prefix in self.removed))

    def factor(self, parameter: str) -> float:
        """L / L' for a parameter inside a kept block, 1 elsewhere."""
        found = (ratio for prefix, ratio in (self.kept or {}).items() if parameter.startswith(f"{prefix}."))
        return next(found, 1.0)


@dataclass(frozen=True)
class _Block:
    """One repeated block: its name, its nodes, and where the residual stream enters and leaves."""

    name: str
    nodes: list[fx.Node]
    entry: fx.Node
    exit: fx.Node


def thin(traced: TracedModule, depth_scaling: float) -> Thinned:
    """Take residual blocks out of the graph, evenly, and scale the branches of those that stay.

    Raises ``ShrinkError`` where no stack of alike pre-norm residual blocks is found.
    """
    if depth_scaling == 1:
        return Thinned()
    stacks = _stacks(traced)
    if not stacks:
        raise ShrinkError(
            "depth_scaling needs a ModuleList or Sequential of two or more alike pre-norm residual blocks, "
            "and none was found: use depth_scaling=1"
        )
    removed: list[str] = []
    kept: dict[str, float] = {}
    for blocks in stacks:
        stay = ceil(len(blocks) / depth_scaling - 1e-9)
        chosen = {index * len(blocks) // stay for index in range(stay)}
        for index, block in enumerate(blocks):
            if index in chosen:
                kept[block.name] = len(blocks) / stay
                _scale_branches(traced, block, len(blocks) / stay)
        for index in sorted(set(range(len(blocks))) - chosen, reverse=True):
            _bypass(blocks[index])
            removed.append(blocks[index].name)
    drop_unused(traced.graph)
    return Thinned(tuple(removed), kept)


def _stacks(traced: TracedModule) -> list[list[_Block]]:
    found: list[list[_Block]] = []
    taken: tuple[str, ...] = ()
    for name, module in traced.named_modules():
        children = dict(module.named_children())
        if not isinstance(module, (nn.ModuleList, nn.Sequential)) or len(children) < 2:
            continue
        if name.startswith(taken) and taken:
            continue
        if len({_signature(child) for child in children.values()}) == 1 and any(
            True for _ in next(iter(children.values())).parameters()
        ):
            blocks = [_block(traced, f"{name}.{key}" if name else key) for key in children]
            if all(block is not None and _adds(traced, block) for block in blocks):
                found.append([block for block in blocks if block is not None])
                taken += (f"{name}.",)
    return found


def _signature(module: nn.Module) -> tuple[Any, ...]:
    shapes = tuple((name, tuple(parameter.shape)) for name, parameter in module.named_parameters())
    return type(module), shapes


def _block(traced: TracedModule, name: str) -> _Block | None:
    nodes = [node for node in traced.graph.nodes if _belongs(node, name)]
    inside = set(nodes)
    exits = [node for node in nodes if _is_tensor(node) and any(user not in inside for user in node.users)]
    if len(exits) != 1:
        return None
    shape = exits[0].meta["spec"].shape
    entries = {
        part
        for node in nodes
        for part in node.all_input_nodes
        if part not in inside
        and _is_tensor(part)
        and part.op != "get_attr"
        and part.meta["spec"].shape == shape
    }
    return _Block(name, nodes, entries.pop(), exits[0]) if len(entries) == 1 else None


def _belongs(node: fx.Node, name: str) -> bool:
    places = [str(node.meta.get("owner", ""))]
    if node.op in ("call_module", "get_attr"):
        places.append(str(node.target))
    return any(place == name or place.startswith(f"{name}.") for place in places)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("spec"), Spec)


def _adds(traced: TracedModule, block: _Block) -> list[tuple[fx.Node, fx.Node]]:
    """The residual additions of a block, each with its branch; none where the stream itself is normalised."""
    layers = dict(traced.named_modules())
    stream, found = block.entry, []
    for node in block.nodes:
        tensors = [part for part in node.all_input_nodes if _is_tensor(part)]
        if operation_of(node) in ("add", "add_", "iadd") and len(tensors) == 2 and stream in tensors:
            branch = tensors[1] if tensors[0] is stream else tensors[0]
            found.append((node, branch))
            stream = node
        elif (
            tensors == [stream]
            and len(stream.users) == 1
            and isinstance(layers.get(str(node.target)), _NORMS)
        ):
            return []
    return found if stream is block.exit else []


def _scale_branches(traced: TracedModule, block: _Block, factor: float) -> None:
    for add, branch in _adds(traced, block):
        name = f"_depth_{len(traced._modules)}"
        traced._modules[name] = Scale(factor, "depth")
        with traced.graph.inserting_before(add):
            scaled = traced.graph.create_node("call_module", name, (branch,))
        scaled.meta = {"owner": block.name, "spec": branch.meta["spec"]}
        add.replace_input_with(branch, scaled)


def _bypass(block: _Block) -> None:
    block.exit.replace_all_uses_with(block.entry, delete_user_cb=lambda user: user not in set(block.nodes))
    for node in reversed(block.nodes):
        if node.users:
            raise ShrinkError(
                f"block '{block.name}' computes something that is used outside it: use depth_scaling=1"
            )
        node.graph.erase_node(node)
