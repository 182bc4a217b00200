"""Walking a recorded model and finding out what each of its sizes depends on.

Every node gets the symbolic dimensions of its result. Layers and functions are described by *rules*: a rule
reads the dimensions of its operands, unites those that must agree, notes how weights are used, and returns
the dimensions of the result. Whatever has no rule is understood where no width is involved or where it works
entry by entry; anything else is an error that names the node.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, fx, nn

from tuning.core.hydro.errors import ShrinkError
from tuning.core.hydro.tracing import Spec, TracedModule, operation_of
from tuning.core.hydro.tracing.structure import BuildOutput
from tuning.core.hydro.widths.atoms import ONE, Conflict, Dim, fix, fresh, is_fixed, leaves, size_of, unify
from tuning.core.hydro.widths.sizes import Sizes

Dims = list[Dim]
Value = Any
"""``Dims`` for a tensor, a tuple or dict of values for a structure, None for anything else."""

Kind = Literal["matrix", "lookup", "vector", "norm", "bias"]
Default = Literal["uniform", "normal", "ones", "zeros", "quarter", "measured"]
Rule = Callable[["Analysis", fx.Node], Value]
LayerRule = Callable[["Analysis", fx.Node, Any], Value]

FUNCTION_RULES: dict[str, Rule] = {}
LAYER_RULES: dict[type[nn.Module], LayerRule] = {}


def function_rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for functions and methods of these names."""

    def register(rule: Rule) -> Rule:
        FUNCTION_RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def layer_rule(*kinds: type[nn.Module]) -> Callable[[LayerRule], LayerRule]:
    """Register a rule for layers of these classes and their subclasses."""

    def register(rule: LayerRule) -> LayerRule:
        LAYER_RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


@dataclass
class Use:
    """One way in which a parameter enters the computation.

    ``fan_in`` is the dimension that one entry of the result sums over, without kernel positions; ``bound`` is
    the half width of PyTorch's uniform default at target width, or the deviation of a normal one.
    """

    parameter: str
    kind: Kind
    node: fx.Node
    fan_in: Dim = ONE
    fan_out: Dim = ONE
    default: Default = "measured"
    bound: float = 0.0


@dataclass
class Correction:
    """A place where an activation's scale would depend on width: insert ``Scale(ratio ** power)`` after it.

    ``reason`` is ``attention`` for products of two activations, or the name of a reduction.
    """

    node: fx.Node
    dim: Dim
    power: float
    reason: str


@dataclass
class Analysis:
    """What is known about the sizes of one recorded model."""

    traced: TracedModule
    values: dict[fx.Node, Value] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    corrections: list[Correction] = field(default_factory=list)
    rewrites: list[Callable[[Sizes], None]] = field(default_factory=list)
    resizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    totals: list[tuple[Dim, str]] = field(default_factory=list)
    """Dimensions that weight matrices read or write, and the layer; these are what shrinks by the ratio."""
    logits: list[tuple[fx.Node, Dim, float]] = field(default_factory=list)
    """Attention layers with their head size and the factor on their logits at target width."""
    exposed: list[Dim] = field(default_factory=list)
    """Dimensions of the model's output that are hidden features, and shrink like any other."""

    def __post_init__(self) -> None:
        self.layers = dict(self.traced.named_modules())
        named = [*self.traced.named_parameters(), *self.traced.named_buffers()]
        self.parameters = {name for name, _ in self.traced.named_parameters()}
        self._names = {id(tensor): name for name, tensor in named}
        self.tensors: dict[str, Tensor] = dict(named)
        self._dims: dict[str, Dims] = {}
        self._origins: dict[fx.Node, frozenset[str] | None] = {}

    def run(self) -> "Analysis":
        """Visit every node in order."""
        for node in self.traced.graph.nodes:
            self._origins[node] = self._origin_of(node)
            try:
                self.values[node] = self._value_of(node)
                self._check(node)
            except Conflict as conflict:
                raise self.error(node, f"{conflict}, which no narrower width satisfies") from None
        return self

    def error(self, node: fx.Node, problem: str) -> ShrinkError:
        """An error that names the node, the layer it is in, and what to do."""
        owner = node.meta.get("owner") or type(self.traced).__name__
        what = str(node.target) if node.op == "call_module" else operation_of(node)
        return ShrinkError(
            f"'{node.name}' ({what}, in '{owner}'): {problem}; "
            "train it at full width (scaling=1) or write this part with ordinary layers"
        )

    def dims_of(self, name: str) -> Dims:
        """The dimensions of a parameter or buffer; tied names share them."""
        name = self.name_of(name)
        if name not in self._dims:
            self._dims[name] = [fresh(size) for size in self.tensors[name].shape]
        return self._dims[name]

    def name_of(self, name: str) -> str:
        """The first of the names under which a tensor is known."""
        if name in self.tensors:
            return name
        owner, _, attribute = name.rpartition(".")
        return self._names[id(getattr(self.traced.get_submodule(owner), attribute))]

    def has(self, layer: str, attribute: str) -> bool:
        return isinstance(getattr(self.layers[layer], attribute, None), Tensor)

    def match(self, layer: str, **dims: Dims) -> None:
        """Unite the dimensions of a layer's tensors with those given; tensors that are None are skipped."""
        for attribute, wanted in dims.items():
            if self.has(layer, attribute):
                for own, other in zip(self.dims_of(f"{layer}.{attribute}"), wanted, strict=True):
                    unify(own, other)

    def use(self, name: str, node: fx.Node, kind: Kind, **details: Any) -> None:
        """Note how a parameter is used."""
        self.uses.append(Use(self.name_of(name), kind, node, **details))

    def resize(self, layer: str, **attributes: Any) -> None:
        """Note what a layer's attributes follow: a Dim, a list of them, or a function of Sizes."""
        self.resizes.setdefault(layer, {}).update(attributes)

    def total(self, dim: Dim, layer: str) -> None:
        """Note that a weight matrix reads or writes along ``dim``."""
        self.totals.append((dim, layer))

    def origins(self, node: Any) -> frozenset[str] | None:
        """The tensors of the model that a node is computed from, or None if it depends on the input."""
        return self._origins.get(node, frozenset())

    def operands(self, node: fx.Node) -> list[Dims]:
        """The dimensions of all tensors among a node's arguments."""
        found: list[Dims] = []

        def collect(part: fx.Node) -> fx.Node:
            if isinstance(self.values.get(part), list):
                found.append(self.values[part])
            return part

        fx.node.map_arg((node.args, node.kwargs), collect)
        return found

    def broadcast(self, operands: list[Dims]) -> Dims:
        """Unite dimensions as broadcasting does, aligned at the last one."""
        result: Dims = []
        for axis in range(1, max((len(dims) for dims in operands), default=0) + 1):
            present = [dims[-axis] for dims in operands if len(dims) >= axis and dims[-axis] != ONE]
            for other in present[1:]:
                unify(present[0], other)
            result.insert(0, present[0] if present else ONE)
        return result

    def data(self, spec: Any) -> Value:
        """Dimensions for a result whose sizes only data decides."""
        if isinstance(spec, Spec):
            return [fresh(size, fixed=True) for size in spec.shape]
        if isinstance(spec, tuple):
            return tuple(self.data(item) for item in spec)
        if isinstance(spec, dict):
            return {key: self.data(item) for key, item in spec.items()}
        return None

    def _value_of(self, node: fx.Node) -> Value:
        if node.op == "placeholder":
            return self.data(node.meta.get("spec"))
        if node.op == "get_attr":
            return self.dims_of(str(node.target))
        if node.op == "output":
            self._fix_outputs(node.args[0])
            return None
        if not _has_spec(node.meta.get("spec")):
            return None
        if node.op == "call_module":
            return self._layer_value(node)
        rule = FUNCTION_RULES.get(operation_of(node))
        # A tensor of the model may still turn out to be a width; what only data decides needs no rule.
        operands = self.operands(node)
        if operands and all(is_fixed(dim) for dims in operands for dim in dims):
            return self.data(node.meta["spec"])
        return rule(self, node) if rule is not None else self._entrywise(node)

    def _layer_value(self, node: fx.Node) -> Value:
        layer = self.layers[str(node.target)]
        rule = next((LAYER_RULES[kind] for kind in type(layer).__mro__ if kind in LAYER_RULES), None)
        if "parametrizations" in dict(layer.named_children()):
            raise self.error(node, "its weight is computed by a parametrization (weight or spectral norm)")
        if rule is not None:
            return rule(self, node, layer)
        if next(layer.parameters(), None) is not None:
            raise self.error(node, f"no width rule is known for {type(layer).__name__}")
        return self._entrywise(node)

    def _entrywise(self, node: fx.Node) -> Value:
        """Fallback: the node works entry by entry, which its shapes must confirm."""
        spec = node.meta["spec"]
        operands = self.operands(node)
        name = operation_of(node)
        shape = _broadcast_shape([_shape(dims) for dims in operands])
        if (
            isinstance(spec, Spec)
            and spec.shape == shape
            and not name.startswith(("linalg", "fft", "inverse"))
        ):
            return self.broadcast(operands)
        if all(is_fixed(dim) for dims in operands for dim in dims):
            return self.data(spec)
        raise self.error(node, "no width rule is known for this operation")

    def _fix_outputs(self, result: Any) -> None:
        """What leaves the model keeps its size, except features that some weight of the model also reads."""
        leaving: list[Dim] = []

        def visit(part: fx.Node) -> fx.Node:
            if self.layers.get(str(part.target)).__class__ is BuildOutput:
                fx.node.map_arg(part.args, visit)
            leaving.extend(dim for dims in _tensors_in(self.values.get(part)) for dim in dims)
            return part

        fx.node.map_arg(result, visit)
        read = {id(atom) for use in self.uses if use.kind == "matrix" for atom in leaves(use.fan_in)}
        for dim in leaving:
            if any(id(atom) in read for atom in leaves(dim)):
                self.exposed.append(dim)
            else:
                fix(dim)

    def _origin_of(self, node: fx.Node) -> frozenset[str] | None:
        if node.op == "placeholder":
            return None
        if node.op == "get_attr":
            return frozenset([self.name_of(str(node.target))])
        found: set[str] = set()
        for part in node.all_input_nodes:
            origin = self._origins[part]
            if origin is None and not isinstance(part.meta.get("spec"), int):
                return None
            found |= origin or frozenset()
        return None if node.op == "call_module" else frozenset(found)

    def _check(self, node: fx.Node) -> None:
        spec, value = node.meta.get("spec"), self.values[node]
        if isinstance(spec, Spec) and isinstance(value, list) and _shape(value) != spec.shape:
            raise self.error(
                node, f"the analysis expects shape {_shape(value)} and the model gave {spec.shape}"
            )


def _has_spec(spec: Any) -> bool:
    if isinstance(spec, Spec):
        return True
    if isinstance(spec, dict):
        return any(_has_spec(item) for item in spec.values())
    return isinstance(spec, tuple) and any(_has_spec(item) for item in spec)


def _tensors_in(value: Value) -> list[Dims]:
    if isinstance(value, list):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return [dims for item in value for dims in _tensors_in(item)]
    return []


def _shape(dims: Dims) -> tuple[int, ...]:
    return tuple(size_of(dim) for dim in dims)


def _broadcast_shape(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    result: list[int] = []
    for axis in range(1, max((len(shape) for shape in shapes), default=0) + 1):
        sizes = {shape[-axis] for shape in shapes if len(shape) >= axis} - {1}
        if len(sizes) > 1:
            return None
        result.insert(0, sizes.pop() if sizes else 1)
    return tuple(result)
