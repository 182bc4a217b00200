"""Rules for functions that reduce a dimension, and for those whose scale depends on how long it is."""

from typing import Any

from torch import fx

from tuning.core.hydro.tracing import operation_of
from tuning.core.hydro.widths.analysis import Analysis, Correction, Dims, Value, function_rule
from tuning.core.hydro.widths.atoms import ONE, fix, is_fixed, unify
from tuning.core.hydro.widths.movement import merge, number, options, tensor

_POWERS = {"sum": 1.0, "norm": 0.5, "vector_norm": 0.5, "linalg_vector_norm": 0.5}
"""How a reduction over a width grows with it, for coordinates that training makes agree."""


@function_rule(
    "sum", "mean", "amax", "amin", "max", "min", "var", "std", "prod", "norm", "logsumexp", "argmax",
    "argmin", "all", "any", "median", "nansum", "nanmean", "vector_norm", "linalg_vector_norm", "var_mean",
    "std_mean", "count_nonzero",
)  # fmt: skip
def reduction(a: Analysis, node: fx.Node) -> Value:
    x, spec = tensor(a, node), node.meta["spec"]
    name = operation_of(node)
    second = node.args[1] if len(node.args) > 1 else None
    if name in ("max", "min") and isinstance(second, fx.Node) and isinstance(a.values.get(second), list):
        return a.broadcast([x, a.values[second]])
    axes = _axes(node, name, len(x))
    gone = [x[axis] for axis in axes]
    if name in _POWERS and any(not is_fixed(dim) for dim in gone):
        a.corrections.append(Correction(node, merge(gone), _POWERS[name], "sum"))
    first = spec[0] if isinstance(spec, tuple) else spec
    if len(first.shape) == len(x):
        kept: Dims = [ONE if axis in axes else dim for axis, dim in enumerate(x)]
    else:
        kept = [dim for axis, dim in enumerate(x) if axis not in axes]
    return tuple(list(kept) for _ in spec) if isinstance(spec, tuple) else kept


def _axes(node: fx.Node, name: str, ndim: int) -> list[int]:
    order = ("input", "p", "dim") if "norm" in name else ("input", "dim")
    given = options(node, *order).get("dim", node.kwargs.get("axis"))
    if given is None or given == () or given == []:
        return list(range(ndim))
    dims = [given] if not isinstance(given, (tuple, list)) else list(given)
    return [number(axis) % ndim for axis in dims]


@function_rule("softmax", "log_softmax", "softmin", "_softmax")
def softmax(a: Analysis, node: fx.Node) -> Value:
    given = options(node, "input", "dim")
    return softmax_over(a, node, tensor(a, node), given.get("dim", node.kwargs.get("axis")))


def softmax_over(a: Analysis, node: fx.Node, x: Dims, dim: Any) -> Dims:
    """A softmax over a width has entries in proportion to 1 / width."""
    axis = number(dim) if dim is not None else 1
    if not is_fixed(x[axis]):
        a.corrections.append(Correction(node, x[axis], -1.0, "softmax"))
    return x


@function_rule("normalize")
def normalize(a: Analysis, node: fx.Node) -> Value:
    x, given = tensor(a, node), options(node, "input", "p", "dim")
    axis = number(given.get("dim", 1))
    if not is_fixed(x[axis]):
        a.corrections.append(Correction(node, x[axis], -0.5, "softmax"))
    return x


@function_rule(
    "contiguous", "clone", "detach", "to", "float", "double", "half", "bfloat16", "long", "int", "bool",
    "type", "type_as", "cpu", "cuda", "cumsum", "roll", "flip", "tril", "triu", "dropout", "requires_grad_",
    "detach_", "fill_", "zero_", "nan_to_num", "pow", "alias",
)  # fmt: skip
def unary(a: Analysis, node: fx.Node) -> Value:
    operands = a.operands(node)
    if operation_of(node) == "pow" and len(operands) > 1:
        return a.broadcast(operands)
    return operands[0]


@function_rule("topk", "sort", "kthvalue", "argsort", "unique", "nonzero")
def ordering(a: Analysis, node: fx.Node) -> Value:
    x = tensor(a, node)
    if any(not is_fixed(dim) for dim in x[-1:]):
        fix(x[-1])
    return a.data(node.meta["spec"])


@function_rule(
    "cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
    "ctc_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "one_hot",
)  # fmt: skip
def loss(a: Analysis, node: fx.Node) -> Value:
    for dims in a.operands(node):
        for dim in dims:
            fix(dim)
    return a.data(node.meta["spec"])


@function_rule(
    "interpolate", "upsample", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "lp_pool1d",
    "lp_pool2d",
)  # fmt: skip
def spatial(a: Analysis, node: fx.Node) -> Value:
    """Functions over the positions of an image or a series, channel by channel."""
    x, spec = tensor(a, node), node.meta["spec"]
    parts = spec if isinstance(spec, tuple) else (spec,)
    for dim in x[2:]:
        fix(dim)
    values = tuple([*x[:2], *a.data(part)[2:]] for part in parts)
    return values if isinstance(spec, tuple) else values[0]


@function_rule("group_norm")
def group_norm(a: Analysis, node: fx.Node) -> Value:
    given = options(node, "input", "num_groups", "weight", "bias")
    x, groups = tensor(a, node), number(given["num_groups"])
    for part, kind, default in (("weight", "norm", "ones"), ("bias", "bias", "zeros")):
        if isinstance(given.get(part), fx.Node):
            unify(a.values[given[part]][0], x[1])
            for name in a.origins(given[part]) or ():
                if name in a.parameters:
                    a.use(name, node, kind, fan_out=x[1], default=default)  # type: ignore[arg-type]

    def rewrite(sizes: Any) -> None:
        new = sizes.groups(x[1], groups)
        if "num_groups" in node.kwargs:
            node.kwargs = {**node.kwargs, "num_groups": new}
        else:
            node.args = (node.args[0], new, *node.args[2:])

    a.rewrites.append(rewrite)
    return x
