"""Rules for functions that move entries without computing: views, permutations, joins and cuts."""

from math import prod
from typing import Any

from torch import fx

from tuning.core.hydro.widths.analysis import Analysis, Dims, Value, function_rule
from tuning.core.hydro.widths.atoms import (
    ONE,
    Atom,
    Dim,
    Term,
    fix,
    fresh,
    is_fixed,
    leaves,
    normal,
    size_of,
    split_product,
    unify,
)
from tuning.core.hydro.widths.rewriting import set_sizes

Options = dict[str, Any]


def options(node: fx.Node, *names: str) -> Options:
    """A function's arguments by the names given in order."""
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def tensor(a: Analysis, node: fx.Node, name: str = "input") -> Dims:
    """The first operand's dimensions."""
    source = node.args[0] if node.args else node.kwargs.get(name, node.kwargs.get("self"))
    dims = a.values[source]  # type: ignore[index]
    assert isinstance(dims, list)
    return dims


def number(value: Any) -> int:
    """A size argument's value in the recorded run."""
    return int(value.meta["spec"]) if isinstance(value, fx.Node) else int(value)


def merge(dims: Dims) -> Dim:
    """The dimension that flattening these makes; a leading concatenation stays one."""
    dims = [dim for dim in dims if dim != ONE]
    if not dims:
        return ONE
    if len(dims) == 1:
        return dims[0]
    tail: Term = ()
    for dim in dims[1:]:
        terms = normal(dim)
        tail += terms[0] if len(terms) == 1 else (_wrapped(dim),)
    return tuple((*term, *tail) for term in normal(dims[0]))


def _wrapped(dim: Dim) -> Atom:
    parts = leaves(dim)
    return Atom(
        size_of(dim),
        fixed=all(part.fixed for part in parts),
        width=any(part.width for part in parts),
        definition=dim,
    )


def regroup(dims: Dims, shape: list[int]) -> Dims:
    """The dimensions of a row-major view of ``dims`` with this shape.

    Consecutive dimensions are matched in the smallest groups of equal product, which is exactly what a view
    does to memory; within a group they are merged and cut again.
    """
    result: Dims = []
    source = [dim for dim in dims if size_of(dim) != 1]
    target = list(shape)
    if 0 in target:
        return [fresh(size, fixed=True) for size in shape]
    while target:
        if target[0] == 1:
            result.append(ONE)
            target.pop(0)
            continue
        left, right = [source.pop(0)], [target.pop(0)]
        while (have := prod(map(size_of, left))) != (want := prod(right)):
            if have < want:
                left.append(source.pop(0))
            else:
                right.append(target.pop(0))
        result.extend(_recut(left, right))
    return result


def _recut(left: Dims, right: list[int]) -> Dims:
    if len(right) == 1:
        return [merge(left)]
    wanted = [size for size in right if size != 1]
    if len(wanted) == 1:
        parts = [merge(left)]
    elif [size_of(dim) for dim in left] == wanted:
        parts = list(left)
    else:
        parts = split_product(merge(left), wanted)
    pieces = iter(parts)
    return [ONE if size == 1 else next(pieces) for size in right]


@function_rule("view", "reshape", "flatten", "unflatten", "_unsafe_view")
def view(a: Analysis, node: fx.Node) -> Value:
    result = regroup(tensor(a, node), list(node.meta["spec"].shape))
    if node.target in ("view", "reshape") or getattr(node.target, "__name__", "") == "reshape":
        set_sizes(a, node, 1, result)
    elif node.target == "unflatten" or getattr(node.target, "__name__", "") == "unflatten":
        axis = number(options(node, "input", "dim")["dim"]) % len(tensor(a, node))
        added = len(result) - len(tensor(a, node)) + 1
        set_sizes(a, node, 2, result[axis : axis + added])
    return result


@function_rule("view_as", "reshape_as")
def view_as(a: Analysis, node: fx.Node) -> Value:
    other = a.values[node.args[1]]  # type: ignore[index]
    result = regroup(tensor(a, node), list(node.meta["spec"].shape))
    for own, wanted in zip(result, other, strict=True):
        unify(own, wanted)
    return result


@function_rule("permute")
def permute(a: Analysis, node: fx.Node) -> Value:
    order = node.args[1:] if len(node.args) > 2 or isinstance(node.args[1], int) else node.args[1]
    order = node.kwargs.get("dims", order) if len(node.args) > 1 else node.kwargs["dims"]
    x = tensor(a, node)
    return [x[number(axis)] for axis in order]  # type: ignore[union-attr]


@function_rule("transpose", "swapaxes", "swapdims", "transpose_")
def transpose(a: Analysis, node: fx.Node) -> Value:
    x, given = list(tensor(a, node)), options(node, "input", "dim0", "dim1")
    i, j = number(given["dim0"]), number(given["dim1"])
    x[i], x[j] = x[j], x[i]
    return x


@function_rule("t")
def transposed(a: Analysis, node: fx.Node) -> Value:
    return list(reversed(tensor(a, node)))


@function_rule("getattr")
def attribute(a: Analysis, node: fx.Node) -> Value:
    x = tensor(a, node)
    if node.args[1] in ("T",):
        return list(reversed(x))
    if node.args[1] in ("mT", "mH", "H"):
        return [*x[:-2], x[-1], x[-2]]
    return x


@function_rule("movedim", "moveaxis")
def movedim(a: Analysis, node: fx.Node) -> Value:
    x, given = tensor(a, node), options(node, "input", "source", "destination")
    pair = [
        [part] if isinstance(part, int) else list(part) for part in (given["source"], given["destination"])
    ]
    moved = {to % len(x): x[at] for at, to in zip(*pair, strict=True)}
    taken = {at % len(x) for at in pair[0]}
    rest = iter(dim for axis, dim in enumerate(x) if axis not in taken)
    return [moved[axis] if axis in moved else next(rest) for axis in range(len(x))]


@function_rule("squeeze", "squeeze_")
def squeeze(a: Analysis, node: fx.Node) -> Value:
    x, given = tensor(a, node), options(node, "input", "dim").get("dim")
    axes = range(len(x)) if given is None else [given] if isinstance(given, int) else given
    gone = {axis % len(x) for axis in axes if size_of(x[axis]) == 1}
    return [dim for axis, dim in enumerate(x) if axis not in gone]


@function_rule("unsqueeze", "unsqueeze_")
def unsqueeze(a: Analysis, node: fx.Node) -> Value:
    x = list(tensor(a, node))
    x.insert(number(options(node, "input", "dim")["dim"]) % (len(x) + 1), ONE)
    return x


@function_rule("expand", "broadcast_to")
def expand(a: Analysis, node: fx.Node) -> Value:
    x, shape = tensor(a, node), node.meta["spec"].shape
    padded = [ONE] * (len(shape) - len(x)) + x
    result = [fresh(size) if size_of(dim) == 1 else dim for dim, size in zip(padded, shape, strict=True)]
    set_sizes(a, node, 1, result)
    return result


@function_rule("expand_as")
def expand_as(a: Analysis, node: fx.Node) -> Value:
    return a.broadcast([tensor(a, node), a.values[node.args[1]]])  # type: ignore[index]


@function_rule("repeat", "tile")
def repeat(a: Analysis, node: fx.Node) -> Value:
    x, shape = tensor(a, node), node.meta["spec"].shape
    padded = [ONE] * (len(shape) - len(x)) + x
    times = [size // size_of(dim) for dim, size in zip(padded, shape, strict=True)]
    result: Dims = []
    copies: Dims = []
    for dim, count in zip(padded, times, strict=True):
        copies.append(fresh(count))
        result.append(merge([copies[-1], dim]) if size_of(dim) != 1 else copies[-1])
    set_sizes(a, node, 1, copies)
    return result


@function_rule("repeat_interleave")
def repeat_interleave(a: Analysis, node: fx.Node) -> Value:
    x, given = list(tensor(a, node)), options(node, "input", "repeats", "dim")
    axis = given.get("dim")
    if axis is None or not isinstance(given["repeats"], int):
        raise a.error(node, "repeat_interleave is understood with a number and a dim")
    x[axis] = merge([x[axis], fresh(given["repeats"], fixed=True)])
    return x


@function_rule("cat", "concat", "concatenate")
def cat(a: Analysis, node: fx.Node) -> Value:
    given = options(node, "tensors", "dim")
    parts = [a.values[part] for part in given["tensors"]]
    parts = [part for part in parts if 0 not in [size_of(dim) for dim in part]]
    axis = number(given.get("dim", given.get("axis", 0))) % len(parts[0])
    first = list(parts[0])
    for part in parts[1:]:
        for own, other in zip(range(len(first)), part, strict=True):
            if own != axis:
                unify(first[own], other)
    first[axis] = tuple(term for part in parts for term in part[axis])
    return first


@function_rule("stack")
def stack(a: Analysis, node: fx.Node) -> Value:
    given = options(node, "tensors", "dim")
    parts = [a.values[part] for part in given["tensors"]]
    result = list(parts[0])
    for part in parts[1:]:
        for own, other in zip(result, part, strict=True):
            unify(own, other)
    result.insert(number(given.get("dim", 0)) % (len(result) + 1), fresh(len(parts), fixed=True))
    return result


@function_rule("unbind", "__iter__")
def unbind(a: Analysis, node: fx.Node) -> Value:
    x = list(tensor(a, node))
    axis = number(options(node, "input", "dim").get("dim", 0)) % len(x)
    gone = x.pop(axis)
    fix(gone)
    return tuple(list(x) for _ in range(size_of(gone)))


@function_rule("select")
def select(a: Analysis, node: fx.Node) -> Value:
    x = list(tensor(a, node))
    fix(x.pop(number(options(node, "input", "dim", "index")["dim"]) % len(x)))
    return x


@function_rule("pad")
def pad(a: Analysis, node: fx.Node) -> Value:
    x, given = list(tensor(a, node)), options(node, "input", "pad")
    amounts = [number(amount) for amount in given["pad"]]
    pieces: list[Dim] = []
    for index in range(0, len(amounts), 2):
        axis, before, after = len(x) - 1 - index // 2, amounts[index], amounts[index + 1]
        if is_fixed(x[axis]) or before < 0 or after < 0:
            if before or after:
                fix(x[axis])
                x[axis] = fresh(size_of(x[axis]) + before + after, fixed=True)
            pieces += [fresh(0, fixed=True)] * 2
            continue
        sides = [fresh(size) if size else () for size in (before, after)]
        x[axis] = (*sides[0], *x[axis], *sides[1])
        pieces += sides
    _rewrite_pad(a, node, pieces, amounts)
    return x


def _rewrite_pad(a: Analysis, node: fx.Node, pieces: list[Dim], amounts: list[int]) -> None:
    def rewrite(sizes: Any) -> None:
        new = [
            sizes.new(piece) if piece and not is_fixed(piece) else given
            for piece, given in zip(pieces, options(node, "input", "pad")["pad"], strict=True)
        ]
        if "pad" in node.kwargs:
            node.kwargs = {**node.kwargs, "pad": tuple(new)}
        else:
            node.args = (node.args[0], tuple(new), *node.args[2:])

    if any(piece and not is_fixed(piece) for piece in pieces) and any(amounts):
        a.rewrites.append(rewrite)
