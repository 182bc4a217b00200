"""Rewriting a traced model so that one graph runs many trials of it: where each value keeps its trials.

Every value of the fused graph has one of three layouts, for F trials and the shape that the value has in one
trial (N is the batch):

* ``SHARED``: the same tensor for every trial, as the user's own inputs are. Operations on shared values alone
  run once.
* ``FIRST``: ``(F, N, ...)``; matrix products are ``bmm`` over it.
* ``PACKED``: ``(N, F * C, ...)``, the trials side by side in the channels; what grouped convolutions, batch
  norms and pooling read and write.

Rules (`families/`) ask for the layout that their operation is fast in; a conversion is inserted only where
producer and consumer differ. The graph does not depend on F, so that defusing and merging compile nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, fx, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.gradient_order import with_ordered_gradient
from tuning.core.hydro.random_streams import RandomStreams
from tuning.core.hydro.tracing.recorder import RANDOM


class Layout(Enum):
    SHARED = "shared"
    FIRST = "first"
    PACKED = "packed"


@dataclass(frozen=True, slots=True)
class Value:
    """A node of the fused graph and where its trials are."""

    node: fx.Node
    layout: Layout

    @property
    def example(self) -> Any:
        return self.node.meta["example"]

    @property
    def is_per_trial(self) -> bool:
        return self.layout is not Layout.SHARED


FunctionRule = Callable[..., Any]
ModuleRule = Callable[..., Any]

FUNCTIONS: dict[Any, FunctionRule] = {}
"""How a function or tensor method treats the trials: ``rule(fuser, function, *args, **kwargs)``."""

MODULES: dict[type[nn.Module], ModuleRule] = {}
"""How a module treats the trials: ``rule(fuser, module, path, *args, **kwargs)``."""

STOCHASTIC: set[Any] = set()
"""Functions that draw random numbers: per trial even where their input is shared."""


def function_rule(*functions: Any, stochastic: bool = False) -> Callable[[FunctionRule], FunctionRule]:
    """Register the rule of one or several functions."""

    def register(rule: FunctionRule) -> FunctionRule:
        FUNCTIONS.update(dict.fromkeys(functions, rule))
        if stochastic:
            STOCHASTIC.update(functions)
        return rule

    return register


def module_rule(*types: type[nn.Module]) -> Callable[[ModuleRule], ModuleRule]:
    """Register the rule of one or several module types."""

    def register(rule: ModuleRule) -> ModuleRule:
        MODULES.update(dict.fromkeys(types, rule))
        return rule

    return register


def known_type(module: nn.Module) -> type[nn.Module] | None:
    """The type in the table whose ``forward`` this module runs, if any."""
    if nn.utils.parametrize.is_parametrized(module):
        return None
    for kind in type(module).__mro__:
        if kind in MODULES:
            return kind
        if "forward" in vars(kind):
            return None
    return None


def packed_from_first(value: Tensor) -> Tensor:
    """(F, N, C, ...) to (N, F * C, ...)."""
    return value.transpose(0, 1).flatten(1, 2)


def first_from_packed(value: Tensor, trials: int) -> Tensor:
    """(N, F * C, ...) to (F, N, C, ...), as a view."""
    value = with_ordered_gradient(value)
    return value.view(value.shape[0], trials, value.shape[1] // trials, *value.shape[2:]).transpose(0, 1)


def first_from_shared(value: Tensor, trials: int) -> Tensor:
    """(N, ...) to (F, N, ...), as a view."""
    return value.expand(trials, *value.shape)


def packed_from_shared(value: Tensor, trials: int) -> Tensor:
    """(N, C, ...) to (N, F * C, ...)."""
    return value.repeat(1, trials, *(1,) * (value.dim() - 2))


class Fuser:
    """Writes the fused graph and runs each node at once on the example, so that every shape is known.

    ``tensors`` holds parameters and buffers by canonical name, stacked ``(F, ...)`` or, for the names in
    ``shared_names``, once for all. They are written to (batch norm statistics), so pass copies.
    """

    def __init__(
        self,
        template: nn.Module,
        tensors: dict[str, Tensor],
        shared_names: frozenset[str],
        streams: RandomStreams,
        aliases: dict[str, str],
        prefix: str = "",
    ) -> None:
        self.template = template
        self.graph = fx.Graph()
        self.aliases = aliases
        self.prefix = prefix
        self.drawing_order: tuple[int, ...] | None = None
        self.orders: dict[str, tuple[int, ...]] = {}
        self.trials = self._placeholder("trials", len(streams))
        self.streams = self._placeholder("streams", streams)
        self._tensors = {
            name: Value(
                self._placeholder("w_" + name.replace(".", "_"), tensor),
                Layout.SHARED if name in shared_names else Layout.FIRST,
            )
            for name, tensor in tensors.items()
        }

    @property
    def training(self) -> bool:
        return self.template.training

    @property
    def trial_count(self) -> int:
        return int(self.trials.meta["example"])

    def _placeholder(self, name: str, example: Any) -> fx.Node:
        node = self.graph.placeholder(name)
        node.meta["example"] = example
        return node

    def input(self, name: str, example: Any) -> Value:
        """A new argument of the fused graph, shared by all trials."""
        return Value(self._placeholder("x_" + name, example), Layout.SHARED)

    def write(self, function: Callable[..., Any], *args: Any) -> fx.Node:
        """``emit`` for a call that changes a buffer or a random stream, and must never be dropped."""
        node = self.emit(function, *args)
        node.meta["writes"] = True
        return node

    def constant(self, name: str, value: Any) -> Value:
        """A tensor of the model that is no parameter or buffer; the same for all trials."""
        return Value(self._placeholder("c_" + name.replace(".", "_"), value), Layout.SHARED)

    def emit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        """Append a call and run it on the examples."""
        node = self.graph.call_function(function, args, kwargs)
        node.meta["example"] = function(*_examples(args), **_examples(kwargs))
        return node

    def tensor(self, name: str, order: tuple[int, ...] | None = None) -> Value:
        """A parameter or buffer by its name in the user's model.

        ``order`` is the order of dimensions in memory that this operation is fastest with; the first wish for
        a parameter counts.
        """
        canonical = self._canonical(name)
        if canonical not in self._tensors:
            raise FuseError(f"{name} is no parameter or buffer of the model: register it")
        if order is not None:
            self.orders.setdefault(canonical, order)
        return self._tensors[canonical]

    def _canonical(self, name: str) -> str:
        name = name.removeprefix(self.prefix)
        return self.aliases.get(name, name)

    def has_tensor(self, name: str) -> bool:
        """Whether ``name`` is a parameter or buffer that the trials hold."""
        return self._canonical(name) in self._tensors

    def optional(self, path: str, name: str, order: tuple[int, ...] | None = None) -> fx.Node | None:
        """A module's stacked parameter as a node, or None where the module has none."""
        if getattr(self.template.get_submodule(path), name) is None:
            return None
        return self.first(self.tensor(f"{path}.{name}" if path else name, order))

    def first(self, value: Value) -> fx.Node:
        """The value as ``(F, N, ...)``."""
        if value.layout is Layout.FIRST:
            return value.node
        convert = first_from_packed if value.layout is Layout.PACKED else first_from_shared
        return self.emit(convert, value.node, self.trials)

    def packed(self, value: Value) -> fx.Node:
        """The value as ``(N, F * C, ...)``."""
        if value.layout is Layout.PACKED:
            return value.node
        if value.layout is Layout.FIRST:
            return self.emit(packed_from_first, value.node)
        return self.emit(packed_from_shared, value.node, self.trials)

    def shape(self, value: Value) -> tuple[int, ...]:
        """The shape in one trial."""
        shape = tuple(value.example.shape)
        if value.layout is Layout.FIRST:
            return shape[1:]
        if value.layout is Layout.PACKED:
            return (shape[0], shape[1] // self.trial_count, *shape[2:])
        return shape

    def rank(self, value: Value) -> int:
        return len(self.shape(value))

    def function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Fuse one call of the user's model."""
        if getattr(function, "__name__", "") in RANDOM:
            raise FuseError(
                "random numbers are drawn outside a dropout layer: they could not be kept per trial"
            )
        if function not in STOCHASTIC and not any(v.is_per_trial for v in values_in((args, kwargs))):
            return Value(self.emit(function, *nodes_of(args), **nodes_of(kwargs)), Layout.SHARED)
        rule = FUNCTIONS.get(function)
        if rule is None:
            return self.vectorised(function, args, kwargs)
        return rule(self, function, *args, **kwargs)

    def module(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """Fuse one call of a module of the template."""
        module = self.template.get_submodule(path)
        kind = known_type(module)
        if kind is not None:
            return MODULES[kind](self, module, path, *args, **kwargs)
        return self._vectorised_module(module, path, args, kwargs)

    def vectorised(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Fuse a function that has no rule by ``torch.func.vmap`` over the trials."""
        held = list(values_in((args, kwargs)))
        slots = {id(value): index for index, value in enumerate(held)}
        skeleton = fx.node.map_aggregate(
            (args, kwargs), lambda v: _Slot(slots[id(v)]) if isinstance(v, Value) else v
        )
        dims = tuple(0 if value.is_per_trial else None for value in held)
        call = _vectorised_call(function, skeleton, dims)
        nodes = [self.first(v) if v.is_per_trial else v.node for v in held]
        return Value(self.emit(call, *nodes), Layout.FIRST)

    def _vectorised_module(
        self, module: nn.Module, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        tensors = {name: self.tensor(f"{path}.{name}") for name, _ in module.named_parameters()}
        tensors |= {name: self.tensor(f"{path}.{name}") for name, _ in module.named_buffers()}

        def call(held: dict[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return torch.func.functional_call(module, dict(held), args, dict(kwargs))

        call.__name__ = type(module).__name__.lower()
        return self.vectorised(call, (tensors, args, kwargs), {})


@dataclass(frozen=True, slots=True)
class _Slot:
    index: int


def _vectorised_call(function: Any, skeleton: Any, dims: tuple[int | None, ...]) -> Callable[..., Any]:
    def one_trial(*tensors: Any) -> Any:
        args, kwargs = fx.node.map_aggregate(
            skeleton, lambda item: tensors[item.index] if isinstance(item, _Slot) else item
        )
        return function(*args, **kwargs)

    call = torch.func.vmap(one_trial, in_dims=dims, randomness="error")

    def vectorised(*tensors: Any) -> Any:
        return call(*tensors)

    return vectorised


def values_in(tree: Any) -> Iterable[Value]:
    """Every value in nested arguments."""
    found: list[Value] = []
    fx.node.map_aggregate(tree, lambda item: found.append(item) if isinstance(item, Value) else None)
    return found


def nodes_of(tree: Any) -> Any:
    """The arguments with every value replaced by its node as it is."""
    return fx.node.map_aggregate(tree, lambda item: item.node if isinstance(item, Value) else item)


def _examples(tree: Any) -> Any:
    return fx.node.map_aggregate(
        tree, lambda item: item.meta["example"] if isinstance(item, fx.Node) else item
    )
