"""Between FX graphs and programs of the core: operators by name, tensors by shape."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.operations import (
    BARRIER,
    COLLECTIVE,
    MUTATES,
    POINTWISE,
    RANDOM,
    WAIT,
    CapturedProgram,
    Operation,
    Ref,
    TensorFact,
    replace_refs,
)

GETITEM = "getitem"
_COLLECTIVES = frozenset(
    f"_c10d_functional.{name}.default"
    for name in (
        "all_reduce",
        "all_reduce_coalesced",
        "all_gather_into_tensor",
        "all_gather_into_tensor_coalesced",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
        "all_to_all_single",
        "broadcast",
    )
)
_WAIT = "_c10d_functional.wait_tensor.default"
_ATTENTION = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": 3,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": 6,
}
_NUMBERS = frozenset(
    {
        operator.add,
        operator.sub,
        operator.mul,
        operator.floordiv,
        operator.mod,
        operator.neg,
        operator.truediv,
    }
)
_ON_HOST = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)


def name_of(target: Any) -> str:
    """The name of an operator: `aten.mm.default`."""
    if isinstance(target, OpOverload):
        return str(target)
    if target is operator.getitem:
        return GETITEM
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


def operator_named(name: str) -> Any:
    """The inverse of `name_of` for operators of PyTorch's registry."""
    if name == GETITEM:
        return operator.getitem
    namespace, packet, overload = name.split(".", 2)
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def program_of(module: GraphModule) -> CapturedProgram:
    """Read a functional ATen graph with fake tensors in `meta["val"]`.

    Raises:
        ProgramRefused: the graph calls modules or methods, so that it was not captured down to operators.
    """
    inputs: dict[str, TensorFact] = {}
    operations: list[Operation] = []
    outputs: Any = None
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            fact = _fact(_value(module, node))
            if fact is not None:
                inputs[node.name] = fact
        elif node.op == "output":
            outputs = _named(node.args[0])
        elif node.op == "call_function":
            operations.append(_operation(node))
        else:
            raise ProgramRefused(f"node {node.name}: {node.op} is not an operator; capture down to ATen")
    return CapturedProgram(inputs, tuple(operations), outputs)


def _value(module: GraphModule, node: Node) -> Any:
    if "val" in node.meta or node.op != "get_attr":
        return node.meta.get("val")
    found: Any = module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found


def _operation(node: Node) -> Operation:
    value = node.meta.get("val")
    several: list[Any] | None = list(value) if isinstance(value, list | tuple) else None
    single = several is None
    results = (_fact(value),) if several is None else tuple(_fact(item) for item in several)
    name = name_of(node.target)
    return Operation(
        node.name,
        name,
        _named(tuple(node.args)),
        _named(dict(node.kwargs)),
        results,
        single,
        _traits(node, name),
        source=node.name,
    )


def _named(value: Any) -> Any:
    """Nested arguments with nodes by name; immutable containers of FX become plain ones."""
    if isinstance(value, Node):
        return Ref(value.name)
    if isinstance(value, tuple):
        return tuple(_named(item) for item in value)
    if isinstance(value, list):
        return [_named(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _named(item) for key, item in value.items()}
    return value


def _fact(value: Any) -> TensorFact | None:
    if not isinstance(value, torch.Tensor):
        return None
    known = all(isinstance(size, int) for size in value.shape)
    shape = tuple(value.shape) if known else None
    return TensorFact(shape, value.dtype.itemsize, str(value.dtype).removeprefix("torch."))


def _traits(node: Node, name: str) -> frozenset[str]:
    if name in _COLLECTIVES:
        return frozenset({COLLECTIVE})
    if name == _WAIT:
        return frozenset({WAIT})
    if name == GETITEM or node.target in _NUMBERS or name.startswith("aten.sym_"):
        return frozenset()
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace not in ("aten", "prims"):
        return frozenset({BARRIER})
    if any(tag in target.tags for tag in _ON_HOST) or not target._schema.returns:
        return frozenset({BARRIER})
    found = set()
    if target._schema.is_mutable:
        found.add(MUTATES)
    if torch.Tag.nondeterministic_seeded in target.tags and not _draws_nothing(node, name):
        found.add(RANDOM)
    if torch.Tag.pointwise in target.tags:
        found.add(POINTWISE)
    return frozenset(found)


def _draws_nothing(node: Node, name: str) -> bool:
    """Attention without dropout, dropout in evaluation."""
    if name == "aten.native_dropout.default":
        return bool(node.args[1] == 0 or node.args[2] is False)
    position = _ATTENTION.get(name)
    return position is not None and bool(len(node.args) <= position or node.args[position] == 0)


def is_ordered(node: Node) -> bool:
    """Whether a node has an effect besides its result, so that it stays although nobody uses that."""
    if node.op in ("placeholder", "output"):
        return True
    return node.op == "call_function" and bool(_traits(node, name_of(node.target)) - {POINTWISE})


def module_of(program: CapturedProgram, original: GraphModule) -> GraphModule:
    """An FX module that runs a program's operators exactly in their order.

    Args:
        original: where inputs, constants and their fake tensors come from.
    """
    graph = Graph()
    nodes: dict[str, Node] = {}
    known = {node.name: node for node in original.graph.nodes}
    for node in original.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            nodes[node.name] = graph.node_copy(node)
            nodes[node.name].name = node.name
    for operation in program.operations:
        args, kwargs = replace_refs((operation.args, operation.kwargs), lambda ref: nodes[ref.name])
        made = graph.create_node("call_function", _target(operation, known), args, dict(kwargs))
        made._rename(operation.name)
        nodes[operation.name] = made
    graph.output(replace_refs(program.outputs, lambda ref: nodes[ref.name]))
    module = GraphModule(original, graph)
    for name, made in nodes.items():
        made.name = name
    return module


def _target(operation: Operation, known: Mapping[str, Node]) -> Any:
    source = known.get(operation.source)
    if source is not None and source.op == "call_function" and name_of(source.target) == operation.target:
        return source.target
    return operator_named(operation.target)


def propagate_shapes(module: GraphModule) -> None:
    """Compute `meta["val"]` of every node from the inputs' fake tensors, each with storage of its own.

    Copied metadata would let tiles share storages, so that they seem to live together.
    """
    values = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    modes = [value.fake_mode for value in values if isinstance(value, torch._subclasses.FakeTensor)]
    FakeTensorProp(module, modes[0] if modes else None).propagate_dont_convert_inputs(*values)


def aliases_of(module: GraphModule) -> set[str]:
    """Operators whose result lies in the storage of an operand: they allocate nothing and take no time."""
    found = set()
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        operands = {key for source in node.all_input_nodes for key in _storages(source.meta.get("val"))}
        made = _storages(node.meta.get("val"))
        if made and made <= operands:
            found.add(node.name)
    return found


def _storages(value: Any) -> set[StorageWeakRef]:
    return {
        StorageWeakRef(leaf.untyped_storage())
        for leaf in tree_leaves(value)
        if isinstance(leaf, torch.Tensor)
    }


def check_shapes(program: CapturedProgram, module: GraphModule) -> None:
    """Compare what the tiling rules predict with what PyTorch says.

    Raises:
        ProgramRefused: a rule is wrong about an operator.
    """
    values = {node.name: node.meta.get("val") for node in module.graph.nodes}
    for operation in program.operations:
        value = values[operation.name]
        made: Sequence[Any] = [value] if operation.single else value
        for fact, tensor in zip(operation.results, made, strict=True):
            if fact is None or fact.shape is None or not isinstance(tensor, torch.Tensor):
                continue
            if tuple(tensor.shape) != fact.shape:
                raise ProgramRefused(
                    f"node {operation.name}: {operation.target} gives {list(tensor.shape)} per tile,"
                    f" where {list(fact.shape)} was expected"
                )
