"""Rules for functions that sum over a dimension of two operands: matrix products, einsum, bare weights.

A product of an activation with a weight is a layer written by hand, and gets a layer's width rule. A product
of two activations over a width (attention logits) grows with it, and is noted for a correction.
"""

from math import prod, sqrt
from typing import Any

from torch import fx

from tuning.core.hydro.widths.analysis import Analysis, Correction, Dims, Value, function_rule
from tuning.core.hydro.widths.atoms import Dim, fix, is_fixed, mark_count, size_of, unify, widen
from tuning.core.hydro.widths.movement import merge, options, tensor


def contraction(a: Analysis, node: fx.Node, operands: list[Any], read: Dim, write: list[Dim]) -> None:
    """Note a sum over ``read``. ``write`` are, per operand, the dimensions that come from it alone."""
    weights = [index for index, part in enumerate(operands) if a.origins(part) and _parameters(a, part)]
    if not weights:
        if not is_fixed(read):
            a.corrections.append(Correction(node, read, 1.0, "attention"))
        return
    for index in weights:
        for dim in (read, write[index]):
            widen(dim)
            a.total(dim, node.meta.get("owner") or node.name)
        for name in _parameters(a, operands[index]):
            _weight_use(a, node, name, read, write[index])


def _weight_use(a: Analysis, node: fx.Node, name: str, read: Dim, write: Dim) -> None:
    sizes = [size_of(dim) for dim in a.dims_of(name)]
    if prod(sizes) < size_of(read) * size_of(write):
        a.use(name, node, "vector", fan_out=write)
        return
    a.use(
        name, node, "matrix",
        fan_in=read, fan_out=write, default="uniform", bound=1.0 / sqrt(max(1, size_of(read))),
    )  # fmt: skip


def _parameters(a: Analysis, part: Any) -> list[str]:
    return [name for name in a.origins(part) or () if name in a.parameters]


@function_rule("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner")
def matmul(a: Analysis, node: fx.Node) -> Value:
    left, right = a.operands(node)
    return product_of(a, node, list(node.args[:2]), left, right)


def product_of(a: Analysis, node: fx.Node, parts: list[Any], left: Dims, right: Dims) -> Dims:
    """The dimensions of ``left @ right``."""
    read = left[-1]
    unify(read, right[-2] if len(right) > 1 else right[0])
    batch = a.broadcast([left[:-2], right[:-2]])
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else []
    if not _parameters(a, parts[0]) and not _parameters(a, parts[1]):
        for dim in batch:
            mark_count(dim)
    contraction(a, node, parts, read, [rows[0] if rows else (), columns[0] if columns else ()])
    return [*batch, *rows, *columns]


@function_rule("linear")
def linear(a: Analysis, node: fx.Node) -> Value:
    given = options(node, "input", "weight", "bias")
    x, weight = a.values[given["input"]], a.values[given["weight"]]
    unify(weight[-1], x[-1])
    write = weight[0] if len(weight) > 1 else ()
    contraction(a, node, [given["input"], given["weight"]], x[-1], [(), write])
    _bias(a, node, given.get("bias"), write)
    return [*x[:-1], *weight[:-1]]


def _bias(a: Analysis, node: fx.Node, part: Any, write: Dim) -> None:
    if isinstance(part, fx.Node):
        unify(a.values[part][-1], write)
        for name in _parameters(a, part):
            a.use(name, node, "bias", fan_out=write, default="zeros")


@function_rule("addmm", "baddbmm", "addmv", "addbmm")
def addmm(a: Analysis, node: fx.Node) -> Value:
    given = options(node, "input", "mat1", "mat2")
    for alias, name in (("batch1", "mat1"), ("batch2", "mat2"), ("mat", "mat1"), ("vec", "mat2")):
        given.setdefault(name, given.get(alias))
    parts = [given["mat1"], given["mat2"]]
    result = product_of(a, node, parts, a.values[parts[0]], a.values[parts[1]])
    _bias(a, node, given["input"], result[-1])
    return result


@function_rule("einsum")
def einsum(a: Analysis, node: fx.Node) -> Value:
    equation = node.args[0]
    parts: list[Any] = list(node.args[1:])
    if len(parts) == 1 and isinstance(parts[0], (tuple, list)):
        parts = list(parts[0])
    if not isinstance(equation, str) or "..." in equation:
        raise a.error(node, "einsum is understood with an equation without '...'")
    inputs, _, output = equation.replace(" ", "").partition("->")
    letters = inputs.split(",")
    if "->" not in equation:
        every = "".join(letters)
        output = "".join(sorted(letter for letter in set(every) if every.count(letter) == 1))
    known: dict[str, Dim] = {}
    for part, names in zip(parts, letters, strict=True):
        for dim, letter in zip(a.values[part], names, strict=True):
            unify(known.setdefault(letter, dim), dim)
    _einsum_uses(a, node, parts, letters, output, known)
    return [known[letter] for letter in output]


def _einsum_uses(
    a: Analysis, node: fx.Node, parts: list[Any], letters: list[str], output: str, known: dict[str, Dim]
) -> None:
    summed = [letter for letter in known if letter not in output]
    read = merge([known[letter] for letter in summed])
    shared = [letter for letter in output if all(letter in names for names in letters)]
    own = [[n for n in names if n not in summed and n not in shared] for names in letters]
    if not any(_parameters(a, part) for part in parts):
        for letter in shared:
            mark_count(known[letter])
    contraction(a, node, parts, read, [merge([known[n] for n in [*shared, *names]]) for names in own])


@function_rule("conv1d", "conv2d", "conv3d")
def convolution(a: Analysis, node: fx.Node) -> Value:
    given = options(node, "input", "weight", "bias", "stride", "padding", "dilation", "groups")
    x, weight = a.values[given["input"]], a.values[given["weight"]]
    if given.get("groups", 1) != 1:
        raise a.error(node, "a grouped convolution over a bare weight has no width rule")
    for kernel in weight[2:]:
        fix(kernel)
    channels = x[1 - len(weight)]
    unify(weight[1], channels)
    contraction(a, node, [given["input"], given["weight"]], channels, [(), weight[0]])
    for use in a.uses:
        if use.node is node and use.kind == "matrix":
            use.bound = 1.0 / sqrt(prod(size_of(dim) for dim in weight[1:]))
    _bias(a, node, given.get("bias"), weight[0])
    kept = len(weight) - 2
    return [*x[: -kept - 1], weight[0], *a.data(node.meta["spec"])[-kept:]]


@function_rule("layer_norm", "rms_norm")
def layer_norm(a: Analysis, node: fx.Node) -> Value:
    given = options(node, "input", "normalized_shape", "weight", "bias")
    x = tensor(a, node)
    normed = x[-len(given["normalized_shape"]) :]
    for part, kind, default in (("weight", "norm", "ones"), ("bias", "bias", "zeros")):
        if isinstance(given.get(part), fx.Node):
            for own, dim in zip(a.values[given[part]], normed, strict=True):
                unify(own, dim)
            for name in _parameters(a, given[part]):
                a.use(name, node, kind, fan_out=normed[-1], default=default)  # type: ignore[arg-type]
    if "normalized_shape" in node.kwargs or len(node.args) > 1:
        _rewrite_normalized(a, node, normed)
    return x


def _rewrite_normalized(a: Analysis, node: fx.Node, normed: Dims) -> None:
    def rewrite(sizes: Any) -> None:
        shape = tuple(sizes.new(dim) for dim in normed)
        if "normalized_shape" in node.kwargs:
            node.kwargs = {**node.kwargs, "normalized_shape": shape}
        else:
            node.args = (node.args[0], shape, *node.args[2:])

    a.rewrites.append(rewrite)


@function_rule("scaled_dot_product_attention", "multi_head_attention_forward", "bilinear", "cdist")
def refused(a: Analysis, node: fx.Node) -> Value:
    raise a.error(
        node, "this call has no width rule (dropout that is on in evaluation, or a bare module function)"
    )


@function_rule("outer", "ger")
def outer(a: Analysis, node: fx.Node) -> Value:
    left, right = a.operands(node)
    return [left[0], right[0]]
