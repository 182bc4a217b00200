"""Rules for indexing: slices, chunks and look-ups along a dimension that may be a width."""

from collections.abc import Callable
from typing import Any

from torch import fx

from tuning.core.hydro.tracing import Spec
from tuning.core.hydro.widths.analysis import Analysis, Dims, Value, function_rule
from tuning.core.hydro.widths.atoms import (
    ONE,
    Dim,
    fix,
    fresh,
    is_fixed,
    size_of,
    split_product,
    split_sum,
    unify,
    widen,
)
from tuning.core.hydro.widths.movement import number, options, tensor
from tuning.core.hydro.widths.sizes import Sizes


@function_rule("chunk", "split", "tensor_split", "split_with_sizes")
def split(a: Analysis, node: fx.Node) -> Value:
    x, given = tensor(a, node), options(node, "input", "size", "dim")
    axis = number(given.get("dim", 0)) % len(x)
    spec = node.meta["spec"]
    if is_fixed(x[axis]):
        parts = [a.data(part)[axis] for part in spec]
    else:
        parts = split_sum(x[axis], [part.shape[axis] for part in spec])
        _rewrite_split(a, node, parts)
    return tuple([*x[:axis], part, *x[axis + 1 :]] for part in parts)


def _rewrite_split(a: Analysis, node: fx.Node, parts: list[Dim]) -> None:
    """After shrinking, cut by explicit sizes: uneven rounding would shift the bounds of equal chunks."""
    given = options(node, "input", "size", "dim")

    def rewrite(sizes: Sizes) -> None:
        new = [sizes.new(part) for part in parts]
        if any(sizes.changes(part) for part in parts):
            node.op, node.target = "call_method", "split"
            node.args, node.kwargs = (node.args[0], new, number(given.get("dim", 0))), {}

    a.rewrites.append(rewrite)


@function_rule("narrow")
def narrow(a: Analysis, node: fx.Node) -> Value:
    x, given = list(tensor(a, node)), options(node, "input", "dim", "start", "length")
    axis, start, length = (number(given[name]) for name in ("dim", "start", "length"))
    rest = size_of(x[axis]) - start - length
    if is_fixed(x[axis]):
        x[axis] = fresh(length, fixed=True)
        return x
    before, piece, _ = split_sum(x[axis], [start, length, rest])
    x[axis] = piece

    def rewrite(sizes: Sizes) -> None:
        if sizes.changes(before) or sizes.changes(piece):
            node.args, node.kwargs = (node.args[0], axis, sizes.new(before), sizes.new(piece)), {}

    a.rewrites.append(rewrite)
    return x


@function_rule("getitem")
def getitem(a: Analysis, node: fx.Node) -> Value:
    source, index = node.args
    value = a.values[source]  # type: ignore[index]
    if isinstance(value, (tuple, dict)):
        return value[index]  # type: ignore[index]
    if value is None:
        return a.data(node.meta["spec"])
    items = list(index) if isinstance(index, tuple) else [index]
    return _Indexing(a, node, list(value), items).run()


class _Indexing:
    """One basic or advanced index expression, taken apart item by item."""

    def __init__(self, a: Analysis, node: fx.Node, dims: Dims, items: list[Any]) -> None:
        self.a, self.node, self.dims = a, node, dims
        self.items = self._without_ellipsis(items)
        self.result: Dims = []
        self.gathered: list[Dims] = []
        self.gather_at: int | None = None
        self.edits: dict[int, Callable[[Sizes], Any]] = {}

    def run(self) -> Dims:
        axis = 0
        for position, item in enumerate(self.items):
            if item is None:
                self.result.append(ONE)
                continue
            axis += self._take(position, item, axis)
        self.result.extend(self.dims[axis:])
        if self.gather_at is not None:
            self.result[self.gather_at : self.gather_at] = self._gathered_dims()
        if self.edits:
            self.a.rewrites.append(self._rewrite)
        return self.result

    def _take(self, position: int, item: Any, axis: int) -> int:
        """Apply one item; return how many dimensions it consumed."""
        if isinstance(item, slice):
            self.result.append(self._sliced(position, item, self.dims[axis]))
            return 1
        spec = item.meta.get("spec") if isinstance(item, fx.Node) else None
        if isinstance(spec, Spec):
            consumed = len(spec.shape) if str(spec.dtype) == "torch.bool" else 1
            for dim in self.dims[axis : axis + consumed]:
                fix(dim)
            if self.gather_at is None:
                self.gather_at = len(self.result)
            self.gathered.append(
                [] if consumed > 1 or str(spec.dtype) == "torch.bool" else self.a.values[item]
            )
            return consumed
        fix(self.dims[axis])
        return 1

    def _gathered_dims(self) -> Dims:
        have = len(self.node.meta["spec"].shape) - len(self.result)
        shape = self.node.meta["spec"].shape
        at = self.gather_at or 0
        if all(self.gathered):
            return self.a.broadcast(self.gathered)
        return [fresh(size, fixed=True) for size in shape[at : at + have]]

    def _sliced(self, position: int, item: slice, dim: Dim) -> Dim:
        size = size_of(dim)
        bounds = [None if part is None else number(part) for part in (item.start, item.stop, item.step)]
        start, stop, step = slice(*bounds).indices(size)
        length = len(range(start, stop, step))
        if length == size and step == 1:
            if item.stop is not None and not is_fixed(dim):
                self.edits[position] = lambda sizes: slice(None) if sizes.changes(dim) else item
            return dim
        if is_fixed(dim):
            return fresh(length, fixed=True)
        if step > 1:
            return self._strided(position, item, dim, (start, stop, step))
        before, piece, _ = split_sum(dim, [start, stop - start, size - stop])

        def edit(sizes: Sizes) -> slice:
            if not (sizes.changes(before) or sizes.changes(piece)):
                return item
            return slice(sizes.new(before), sizes.new(before) + sizes.new(piece), None)

        self.edits[position] = edit
        return piece

    def _strided(self, position: int, item: slice, dim: Dim, bounds: tuple[int, int, int]) -> Dim:
        start, stop, step = bounds
        if size_of(dim) % step or start >= step or stop < size_of(dim) - step + start + 1:
            raise self.a.error(self.node, "a width is read with a stride that does not divide it")
        kept, phase = split_product(dim, [size_of(dim) // step, step])
        fix(phase)
        self.edits[position] = lambda sizes: slice(start, None, step) if sizes.changes(dim) else item
        return kept

    def _without_ellipsis(self, items: list[Any]) -> list[Any]:
        used = 0
        for item in items:
            spec = item.meta.get("spec") if isinstance(item, fx.Node) else None
            is_mask = isinstance(spec, Spec) and str(spec.dtype) == "torch.bool"
            used += 0 if item is None or item is Ellipsis else len(item.meta["spec"].shape) if is_mask else 1
        full: list[Any] = []
        for item in items:
            full.extend([slice(None)] * (len(self.dims) - used) if item is Ellipsis else [item])
        return full

    def _rewrite(self, sizes: Sizes) -> None:
        items = [self.edits[i](sizes) if i in self.edits else item for i, item in enumerate(self.items)]
        self.node.args = (self.node.args[0], tuple(items), *self.node.args[2:])


@function_rule("setitem")
def setitem(a: Analysis, node: fx.Node) -> Value:
    target, index, value = node.args
    items = list(index) if isinstance(index, tuple) else [index]
    region = _Indexing(a, node, list(a.values[target]), items).run()  # type: ignore[index]
    if isinstance(value, fx.Node) and isinstance(a.values.get(value), list):
        a.broadcast([region, a.values[value]])
    return None


@function_rule("index_select")
def index_select(a: Analysis, node: fx.Node) -> Value:
    x, given = list(tensor(a, node)), options(node, "input", "dim", "index")
    axis = number(given["dim"])
    fix(x[axis])
    x[axis] = a.values[given["index"]][0]
    return x


@function_rule("gather", "take_along_dim")
def gather(a: Analysis, node: fx.Node) -> Value:
    x, given = tensor(a, node), options(node, "input", "dim", "index")
    axis, index = number(given["dim"]) % len(x), a.values[given["index"]]
    fix(x[axis])
    for i, (own, other) in enumerate(zip(x, index, strict=True)):
        if i != axis and size_of(own) == size_of(other):
            unify(own, other)
    return index


@function_rule("embedding")
def embedding(a: Analysis, node: fx.Node) -> Value:
    given = options(node, "input", "weight")
    table = a.values[given["weight"]]
    fix(table[0])
    for name in a.origins(given["weight"]) or ():
        if name in a.parameters:
            widen(table[1])
            a.total(table[1], name)
            a.use(name, node, "lookup", fan_out=table[1], default="normal", bound=1.0)
    return [*a.values[given["input"]], table[1]]
