"""Recording a forward pass while it runs.

Symbolic tracing hands the model proxies and fails at the first ``if`` or C call that wants a real value. Here
the model runs once on real example inputs, and every PyTorch function and leaf module that it calls is
written into a ``torch.fx`` graph. Branches therefore take the way that the examples take, while sizes read
from tensors stay symbolic (``TracedInt``), so that the graph serves any batch size.
"""

import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from tuning.core.hydro.errors import TraceError
from tuning.core.hydro.tracing.leaves import is_leaf, is_small_function, quiet
from tuning.core.hydro.tracing.sizes import TracedInt

RANDOM = frozenset(
    [
        "rand",
        "rand_like",
        "randn",
        "randn_like",
        "randint",
        "randint_like",
        "randperm",
        "bernoulli",
        "bernoulli_",
        "multinomial",
        "normal",
        "normal_",
        "uniform_",
        "random_",
        "exponential_",
        "poisson",
        "empty_permuted",
    ]
)
"""Names of functions that draw random numbers."""


@dataclass(frozen=True)
class Spec:
    """Shape and element type of a tensor in the recorded run."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def spec_of(value: Any) -> Any:
    """The same structure with every tensor replaced by its ``Spec``."""
    if isinstance(value, Tensor):
        return Spec(tuple(int(size) for size in value.shape), value.dtype)
    if isinstance(value, dict):
        return {key: spec_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(spec_of(item) for item in value)
    return int(value) if isinstance(value, TracedInt) else value


class Recorder(TorchFunctionMode):
    """Writes what ``root`` calls into ``graph``; active inside ``with recorder.running():``.

    ``whole`` names modules to record as one node; small modules that draw random numbers are added to it.
    """

    def __init__(self, root: nn.Module, graph: fx.Graph, whole: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.root = root
        self.graph = graph
        self.whole = set(whole)
        self.constants: dict[str, Tensor] = {}
        self.extra_modules: dict[str, nn.Module] = {}
        self.device: torch.device | None = None
        self.device_source: fx.Node | None = None
        self._module_names = {id(module): name for name, module in root.named_modules()}
        tensors = [*root.named_parameters(), *root.named_buffers()]
        self._tensor_names = {id(tensor): name for name, tensor in tensors}
        self._nodes: dict[int, fx.Node] = {}
        self._alive: list[Any] = []
        self._owners: list[str] = []
        self.last_owner = ""
        self._paused = False
        self._thread = threading.get_ident()
        self._random_calls = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record until the block ends."""
        original = nn.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._paused or threading.get_ident() != self._thread:
                return original(module, *args, **kwargs)
            return self._call_module(original, module, args, kwargs)

        nn.Module.__call__ = call  # type: ignore[method-assign]
        try:
            with self:
                yield
        finally:
            nn.Module.__call__ = original  # type: ignore[method-assign]
            self._paused = True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run PyTorch without recording."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def bind(self, tensor: Tensor, node: fx.Node) -> None:
        """Let ``node`` stand for ``tensor`` from here on."""
        node.meta.setdefault("spec", spec_of(tensor))
        self._nodes[id(tensor)] = node
        self._alive.append(tensor)

    def argument(self, value: Any) -> Any:
        """The graph's form of a Python value: nodes for tensors and traced sizes."""
        if isinstance(value, Tensor):
            return self._node_of(value)
        if isinstance(value, TracedInt):
            return value.node
        if isinstance(value, list):
            return [self.argument(item) for item in value]
        if isinstance(value, tuple):
            items = tuple(self.argument(item) for item in value)
            return type(value)(*items) if hasattr(value, "_fields") else items
        if isinstance(value, dict):
            return {key: self.argument(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(self.argument(value.start), self.argument(value.stop), self.argument(value.step))
        if isinstance(value, torch.device) and self.device_source is not None and self._is_home(value):
            return self._append(self.graph.call_function(getattr, (self.device_source, "device")), value)
        return value

    def record_size(self, function: Callable[..., int], operands: tuple[Any, ...], value: int) -> int:
        """Integer arithmetic on sizes becomes part of the graph while recording, and plain ints after it."""
        if self._paused:
            return value
        node = self.graph.call_function(function, self.argument(operands))
        return TracedInt(value, self._append(node, value), self)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._read_property(func, args)
        if (
            name in ("size", "numel", "nelement", "dim", "ndimension")
            and args
            and isinstance(args[0], Tensor)
        ):
            return self._read_size(name, func, args, kwargs)
        node_args, node_kwargs = self.argument(args), self.argument(kwargs)
        result = func(*args, **kwargs)
        self._random_calls += name in RANDOM
        if name != "__setitem__" and not _holds_tensor(result):
            return result
        op, target, swapped = _target_of(func, name)
        if swapped:
            node_args = tuple(reversed(node_args))
        node = self._append(self.graph.create_node(op, target, node_args, node_kwargs), result)
        return self._bind_result(result, node)

    def _read_property(self, func: Any, args: Any) -> Any:
        tensor, attribute = args[0], func.__self__.__name__
        value = func(*args)
        if attribute == "shape":
            return self._traced_shape(tensor, value)
        if isinstance(value, Tensor):
            node = self.graph.call_function(getattr, (self._node_of(tensor), attribute))
            return self._bind_result(value, self._append(node, value))
        return value

    def _traced_shape(self, tensor: Tensor, shape: torch.Size) -> torch.Size:
        source = self._node_of(tensor)
        sizes = []
        for axis, size in enumerate(shape):
            node = self._append(self.graph.call_method("size", (source, axis)), int(size))
            sizes.append(TracedInt(size, node, self))
        return torch.Size(sizes)

    def _read_size(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        value = func(*args, **kwargs)
        if name in ("dim", "ndimension"):
            return value
        if isinstance(value, torch.Size):
            return self._traced_shape(args[0], value)
        method = "numel" if name == "nelement" else name
        node = self.graph.call_method(method, self.argument(args), self.argument(kwargs))
        return TracedInt(value, self._append(node, int(value)), self)

    def _call_module(self, original: Any, module: nn.Module, args: Any, kwargs: Any) -> Any:
        name = self._module_names.get(id(module))
        leaf = module is not self.root and (is_leaf(module) or name in self.whole)
        if leaf and (name is not None or next(module.parameters(), None) is None):
            return self._record_leaf(original, module, name, args, kwargs)
        start, draws = self._last_node(), self._random_calls
        self.last_owner = name if name is not None else type(module).__name__
        self._owners.append(self.last_owner)
        try:
            result = original(module, *args, **kwargs)
        finally:
            self._owners.pop()
        if self._random_calls > draws and name and is_small_function(module):
            self._erase_after(start)
            self._random_calls = draws
            self.whole.add(name)
            return self._record_leaf(original, module, name, args, kwargs)
        return result

    def _record_leaf(self, original: Any, module: nn.Module, name: str | None, args: Any, kwargs: Any) -> Any:
        if name is None:
            name = f"_created_{len(self.extra_modules)}"
            self.extra_modules[name] = module
            self._module_names[id(module)] = name
            self._alive.append(module)
        self.last_owner = name
        node_args, node_kwargs = self.argument(args), self.argument(kwargs)
        with self.paused(), quiet(module):
            result = original(module, *args, **kwargs)
        if not _holds_tensor(result):
            raise TraceError(
                f"layer '{name}' ({type(module).__name__}) returns no tensor: it cannot be recorded"
            )
        with self.paused():
            node = self._append(self.graph.call_module(name, node_args, node_kwargs), result)
            return self._bind_result(result, node)

    def _bind_result(self, result: Any, node: fx.Node) -> Any:
        if isinstance(result, Tensor):
            self.bind(result, node)
        elif isinstance(result, dict):
            for key, item in result.items():
                self._bind_item(item, node, key)
        elif isinstance(result, (list, tuple)):
            for index, item in enumerate(result):
                self._bind_item(item, node, index)
        return result

    def _bind_item(self, item: Any, node: fx.Node, key: Any) -> None:
        if _holds_tensor(item):
            part = self._append(self.graph.call_function(operator.getitem, (node, key)), item)
            self._bind_result(item, part)

    def _node_of(self, tensor: Tensor) -> fx.Node:
        known = self._nodes.get(id(tensor))
        if known is not None:
            return known
        name = self._tensor_names.get(id(tensor))
        if name is None:
            name = f"_constant_{len(self.constants)}"
            self.constants[name] = tensor.detach()
        node = self._append(self.graph.get_attr(name), tensor)
        self.bind(tensor, node)
        return node

    def _append(self, node: fx.Node, value: Any) -> fx.Node:
        node.meta["spec"] = spec_of(value)
        node.meta["owner"] = self._owners[-1] if self._owners else ""
        return node

    def _last_node(self) -> fx.Node:
        return next(iter(reversed(self.graph.nodes)), self.graph._root)

    def _erase_after(self, start: fx.Node) -> None:
        new = []
        for node in reversed(self.graph.nodes):
            if node is start:
                break
            new.append(node)
        gone = set(new)
        self._nodes = {key: node for key, node in self._nodes.items() if node not in gone}
        for node in new:
            self.graph.erase_node(node)

    def _is_home(self, device: torch.device) -> bool:
        home = self.device
        return home is not None and device.type == home.type and device.index in (None, home.index)


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, Tensor):
        return True
    if isinstance(value, dict):
        return any(_holds_tensor(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(_holds_tensor(item) for item in value)


def _target_of(func: Any, name: str) -> tuple[str, Any, bool]:
    """How ``torch.fx`` writes a call of ``func``: kind of node, target, whether operands change places."""
    if name.startswith("__") and name.endswith("__"):
        plain = {"__rdiv__": "truediv", "__rtruediv__": "truediv", "__rfloordiv__": "floordiv"}.get(name)
        stem = name.strip("_")
        if plain is None and not hasattr(operator, stem) and hasattr(operator, stem[1:]):
            plain = stem[1:]
        if plain is not None:
            return "call_function", getattr(operator, plain), True
        if hasattr(operator, stem):
            return "call_function", getattr(operator, stem), False
    if getattr(torch.Tensor, name, None) is func or type(func).__name__ == "method_descriptor":
        return "call_method", name, False
    return "call_function", func, False
