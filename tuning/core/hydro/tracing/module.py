"""The recorded model: the user's modules and parameter names, run by a graph."""

import copy
from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import fx, nn


class TracedModule(fx.GraphModule):
    """A ``GraphModule`` that keeps the whole hierarchy of its root.

    ``fx.GraphModule`` drops what the graph does not mention and reorders the rest; here ``state_dict`` has
    the user's keys in the user's order, also after ``copy.deepcopy`` and pickling. Nodes carry
    ``meta["spec"]`` (shapes and types of the recorded run) and ``meta["owner"]`` (the module that made them).
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> "TracedModule":
        # GraphModule makes a class per instance to hold its forward; here two surrogates share their class.
        return object.__new__(cls)

    def __init__(self, root: nn.Module, graph: fx.Graph, class_name: str = "TracedModule") -> None:
        super().__init__(root, graph, class_name)
        self._modules = dict(root._modules)
        self._parameters = dict(root._parameters)
        self._buffers = dict(root._buffers)
        self._non_persistent_buffers_set = set(root._non_persistent_buffers_set)
        self.training = root.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Replaced in every instance by what its graph says."""
        raise NotImplementedError("this module has no graph yet")

    def recompile(self) -> Any:
        """Generate this instance's ``forward`` from its graph."""
        code = self._graph.python_code(root_module="self")
        self._code = code.src
        self._codegen_globals = dict(code.globals)
        # torch.compile reads both of a GraphModule, to name the lines of what it compiles
        self._lineno_map = getattr(code, "_lineno_map", None)
        self._prologue_start = getattr(code, "_prologue_start", 0)
        exec(compile(code.src, "<recorded forward>", "exec"), self._codegen_globals)
        object.__setattr__(self, "forward", MethodType(self._codegen_globals["forward"], self))
        return code

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "TracedModule":
        memo = {} if memo is None else memo
        twin = TracedModule(copy.deepcopy(skeleton_of(self), memo), _copied(self.graph), self._class_name())
        memo[id(self)] = twin
        for key, value in self._own_attributes().items():
            object.__setattr__(twin, key, copy.deepcopy(value, memo))
        return twin

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        parts = (skeleton_of(self), packed(self.graph), self._class_name(), self._own_attributes())
        return _rebuilt, parts

    def _class_name(self) -> str:
        return str(self.__dict__.get("_graphmodule_cls_name", "TracedModule"))

    def _own_attributes(self) -> dict[str, Any]:
        """What others attached to this module, such as its width rules."""
        return {key: value for key, value in self.__dict__.items() if key.startswith("_hydro_")}


def skeleton_of(module: nn.Module) -> nn.Module:
    """A bare module with the children, parameters and buffers of ``module``, and no forward of its own."""
    root = nn.Module()
    root._modules = dict(module._modules)
    root._parameters = dict(module._parameters)
    root._buffers = dict(module._buffers)
    root._non_persistent_buffers_set = set(module._non_persistent_buffers_set)
    root.training = module.training
    return root


def _copied(graph: fx.Graph) -> fx.Graph:
    return unpacked(packed(graph))


class _Reference:
    """Stands for a node inside packed arguments."""

    def __init__(self, name: str) -> None:
        self.name = name


def packed(graph: fx.Graph) -> list[tuple[Any, ...]]:
    """The graph as plain picklable rows: operation, name, target, arguments, metadata."""
    rows: list[tuple[Any, ...]] = []
    for node in graph.nodes:
        args, kwargs = (
            _swap(part, fx.Node, lambda n: _Reference(n.name)) for part in (node.args, node.kwargs)
        )
        rows.append((node.op, node.name, node.target, args, kwargs, dict(node.meta)))
    return rows


def unpacked(rows: list[tuple[Any, ...]]) -> fx.Graph:
    """The graph that ``packed`` wrote down."""
    graph = fx.Graph()
    nodes: dict[str, fx.Node] = {}
    for op, name, target, args, kwargs, meta in rows:
        args, kwargs = (_swap(part, _Reference, lambda ref: nodes[ref.name]) for part in (args, kwargs))
        node = graph.create_node(op, target, args, kwargs, name)
        node.meta = dict(meta)
        nodes[name] = node
    return graph


def _swap(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, (list, tuple)):
        items = [_swap(item, kind, change) for item in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: _swap(item, kind, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(_swap(part, kind, change) for part in (value.start, value.stop, value.step)))
    return value


def _rebuilt(root: nn.Module, rows: list[tuple[Any, ...]], name: str, own: dict[str, Any]) -> TracedModule:
    module = TracedModule(root, unpacked(rows), name)
    for key, value in own.items():
        object.__setattr__(module, key, value)
    return module
