"""Rules for PyTorch's layers: which of their sizes are widths, and how their weights are used."""

from math import prod, sqrt
from typing import Any

from torch import fx, nn

from tuning.core.hydro.layers import Attention, DropPath, FunctionalBatchNorm, Scale
from tuning.core.hydro.tracing.structure import BuildOutput
from tuning.core.hydro.widths.analysis import Analysis, Dims, Kind, Value, layer_rule
from tuning.core.hydro.widths.atoms import (
    ONE,
    Dim,
    fix,
    is_fixed,
    mark_count,
    size_of,
    split_product,
    split_sum,
    unify,
    widen,
)
from tuning.core.hydro.widths.movement import merge, regroup
from tuning.core.hydro.widths.reductions import softmax_over


def operand(a: Analysis, node: fx.Node, index: int, name: str = "input") -> Dims:
    """The dimensions of one operand of a layer, given by position or by name."""
    value = node.args[index] if len(node.args) > index else node.kwargs[name]
    dims = a.values[value]  # type: ignore[index]
    assert isinstance(dims, list)
    return dims


def bias(a: Analysis, node: fx.Node, layer: str, dim: Dim, attribute: str = "bias") -> None:
    """Note a layer's bias, if it has one, along ``dim``."""
    if a.has(layer, attribute):
        a.match(layer, **{attribute: [dim]})
        a.use(f"{layer}.{attribute}", node, "bias", fan_out=dim, default="zeros")


@layer_rule(nn.Linear)
def linear(a: Analysis, node: fx.Node, layer: nn.Linear) -> Value:
    name, x = str(node.target), operand(a, node, 0)
    weight = a.dims_of(f"{name}.weight")
    unify(weight[1], x[-1])
    matrix(a, node, name, "weight", read=x[-1], write=weight[0], elements=layer.in_features)
    bias(a, node, name, weight[0])
    a.resize(name, in_features=x[-1], out_features=weight[0])
    return [*x[:-1], weight[0]]


def matrix(
    a: Analysis, node: fx.Node, layer: str, attribute: str, *, read: Dim, write: Dim, elements: int
) -> None:
    """Note a weight matrix that sums over ``read`` (``elements`` entries with kernel) into ``write``."""
    for dim in (read, write):
        widen(dim)
        a.total(dim, layer)
    a.use(
        f"{layer}.{attribute}",
        node,
        "matrix",
        fan_in=read,
        fan_out=write,
        default="uniform",
        bound=1.0 / sqrt(elements),
    )


@layer_rule(nn.modules.conv._ConvNd)
def convolution(a: Analysis, node: fx.Node, layer: Any) -> Value:
    name, x = str(node.target), operand(a, node, 0)
    spatial = len(layer.kernel_size)
    channels, weight = x[-spatial - 1], a.dims_of(f"{name}.weight")
    for kernel in weight[2:]:
        fix(kernel)
    read, write = channels, (weight[1] if layer.transposed else weight[0])
    if layer.groups == 1:
        unify(weight[0] if layer.transposed else weight[1], channels)
    else:
        read, write = _grouped(a, name, layer, channels, weight)
    widen(write)
    widen(channels)
    elements = layer.weight.shape[1] * prod(layer.kernel_size)
    depthwise = layer.groups == layer.in_channels and layer.groups > 1
    a.total(channels, name)
    a.total(write, name)
    a.use(
        f"{name}.weight", node, "vector" if depthwise else "matrix",
        fan_in=ONE if depthwise else read, fan_out=write, default="uniform", bound=1.0 / sqrt(elements),
    )  # fmt: skip
    bias(a, node, name, write)
    a.resize(name, in_channels=channels, out_channels=write)
    return [*x[: -spatial - 1], write, *a.data(node.meta["spec"])[-spatial:]]


def _grouped(a: Analysis, name: str, layer: Any, channels: Dim, weight: Dims) -> tuple[Dim, Dim]:
    """Unite the groups of input, output and weight; return what one output channel reads, and all outputs."""
    groups, inside = layer.groups, layer.in_channels // layer.groups
    if inside == 1:
        count, read = channels, ONE
    else:
        count, read = split_product(channels, [groups, inside])
        mark_count(count)
    a.resize(name, groups=count)
    if layer.transposed:
        unify(weight[0], channels)
        return read, merge([count, weight[1]])
    if layer.out_channels == groups:
        unify(weight[0], count)
    else:
        out_groups, _ = split_product(weight[0], [groups, layer.out_channels // groups])
        unify(out_groups, count)
    if inside > 1:
        unify(weight[1], read)
    return read, weight[0]


@layer_rule(nn.modules.batchnorm._BatchNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def batch_norm(a: Analysis, node: fx.Node, layer: Any) -> Value:
    name, x = str(node.target), operand(a, node, 0)
    channels = x[1] if len(x) > 1 else x[0]
    a.match(name, weight=[channels], bias=[channels], running_mean=[channels], running_var=[channels])
    _norm_uses(a, node, name, channels)
    a.resize(name, num_features=channels)
    return x


def _norm_uses(a: Analysis, node: fx.Node, name: str, dim: Dim) -> None:
    for attribute, default in (("weight", "ones"), ("bias", "zeros")):
        if a.has(name, attribute):
            kind: Kind = "norm" if attribute == "weight" else "bias"
            a.use(f"{name}.{attribute}", node, kind, fan_out=dim, default=default)


@layer_rule(nn.LayerNorm, nn.RMSNorm)
def layer_norm(a: Analysis, node: fx.Node, layer: Any) -> Value:
    name, x = str(node.target), operand(a, node, 0)
    normed = x[-len(layer.normalized_shape) :]
    a.match(name, weight=normed, bias=normed)
    for dim in normed:
        if not is_fixed(dim):
            widen(dim)
    _norm_uses(a, node, name, normed[-1])
    a.resize(name, normalized_shape=list(normed))
    return x


@layer_rule(nn.GroupNorm)
def group_norm(a: Analysis, node: fx.Node, layer: nn.GroupNorm) -> Value:
    name, x = str(node.target), operand(a, node, 0)
    channels = x[1]
    a.match(name, weight=[channels], bias=[channels])
    _norm_uses(a, node, name, channels)
    a.resize(name, num_channels=channels, num_groups=lambda sizes: sizes.groups(channels, layer.num_groups))
    return x


@layer_rule(nn.Embedding)
def embedding(a: Analysis, node: fx.Node, layer: nn.Embedding) -> Value:
    name = str(node.target)
    table = a.dims_of(f"{name}.weight")
    fix(table[0])
    widen(table[1])
    a.total(table[1], name)
    a.use(f"{name}.weight", node, "lookup", fan_out=table[1], default="normal", bound=1.0)
    a.resize(name, embedding_dim=table[1])
    return [*a.data(node.meta["spec"])[:-1], table[1]]


@layer_rule(nn.PReLU)
def prelu(a: Analysis, node: fx.Node, layer: nn.PReLU) -> Value:
    name, x = str(node.target), operand(a, node, 0)
    channels = x[1] if layer.num_parameters > 1 else ONE
    a.match(name, weight=[channels])
    a.use(f"{name}.weight", node, "norm", fan_out=channels, default="quarter")
    a.resize(name, num_parameters=channels)
    return x


@layer_rule(nn.Flatten)
def flatten(a: Analysis, node: fx.Node, layer: nn.Flatten) -> Value:
    return regroup(operand(a, node, 0), list(node.meta["spec"].shape))


@layer_rule(nn.Unflatten)
def unflatten(a: Analysis, node: fx.Node, layer: nn.Unflatten) -> Value:
    x = operand(a, node, 0)
    result = regroup(x, list(node.meta["spec"].shape))
    axis = int(layer.dim) % len(x)
    a.resize(str(node.target), unflattened_size=result[axis : axis + len(result) - len(x) + 1])
    return result


_POOLS = (
    nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd, nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd, nn.modules.pooling._LPPoolNd, nn.Upsample, nn.FractionalMaxPool2d,
    nn.modules.padding._ConstantPadNd, nn.modules.padding._ReflectionPadNd,
    nn.modules.padding._ReplicationPadNd, nn.modules.padding._CircularPadNd,
)  # fmt: skip


@layer_rule(*_POOLS)
def spatial(a: Analysis, node: fx.Node, layer: nn.Module) -> Value:
    """Layers that change lengths, heights and widths of an image but no channel."""
    x, spec = operand(a, node, 0), node.meta["spec"]
    if isinstance(spec, tuple):
        return tuple(_same_or_new(x, a.data(part)) for part in spec)
    return _same_or_new(x, a.data(spec))


def _same_or_new(x: Dims, data: Dims) -> Dims:
    dims = []
    for old, new in zip(x, data, strict=True):
        changed = size_of(old) != size_of(new)
        if changed and not is_fixed(old):
            fix(old)
        dims.append(new if changed else old)
    return dims


@layer_rule(nn.PixelShuffle)
def pixel_shuffle(a: Analysis, node: fx.Node, layer: nn.PixelShuffle) -> Value:
    x = operand(a, node, 0)
    factor = layer.upscale_factor**2
    channels, inside = split_product(x[-3], [size_of(x[-3]) // factor, factor])
    fix(inside)
    return [*x[:-3], channels, *a.data(node.meta["spec"])[-2:]]


@layer_rule(nn.GLU)
def glu(a: Analysis, node: fx.Node, layer: nn.GLU) -> Value:
    x = list(operand(a, node, 0))
    half = size_of(x[layer.dim]) // 2
    first, second = split_sum(x[layer.dim], [half, half])
    unify(first, second)
    x[layer.dim] = first
    return x


@layer_rule(nn.Softmax, nn.Softmin, nn.LogSoftmax)
def softmax(a: Analysis, node: fx.Node, layer: Any) -> Value:
    return softmax_over(a, node, operand(a, node, 0), layer.dim)


@layer_rule(Scale, DropPath, nn.Identity)
def unary(a: Analysis, node: fx.Node, layer: nn.Module) -> Value:
    return operand(a, node, 0)


@layer_rule(FunctionalBatchNorm)
def functional_batch_norm(a: Analysis, node: fx.Node, layer: nn.Module) -> Value:
    x = operand(a, node, 0)
    for index, part in enumerate(node.args[1:]):
        if isinstance(part, fx.Node):
            unify(a.values[part][0], x[1])
            for name in a.origins(part) or ():
                if name in dict(a.traced.named_parameters()):
                    kind = ("norm", "ones") if index == 2 else ("bias", "zeros")
                    a.use(name, node, kind[0], fan_out=x[1], default=kind[1])  # type: ignore[arg-type]
    return x


@layer_rule(Attention)
def attention(a: Analysis, node: fx.Node, layer: Attention) -> Value:
    query, key, value = (operand(a, node, index) for index in range(3))
    unify(query[-1], key[-1])
    unify(key[-2], value[-2])
    for axis in range(-min(len(query), len(key)), -2):
        if size_of(query[axis]) == size_of(key[axis]):
            unify(query[axis], key[axis])
        elif size_of(key[axis]) > 1:
            shared, _ = split_product(
                query[axis], [size_of(key[axis]), size_of(query[axis]) // size_of(key[axis])]
            )
            unify(shared, key[axis])
    if len(query) > 3:
        mark_count(query[-3])
    mask = node.args[3] if len(node.args) > 3 else None
    if isinstance(mask, fx.Node):
        a.broadcast([a.values[mask], [*query[:-1], key[-2]]])
    base = layer.scale if layer.scale is not None else 1.0 / sqrt(size_of(query[-1]))
    a.logits.append((node, query[-1], base))
    return [*query[:-1], value[-1]]


@layer_rule(nn.modules.loss._Loss)
def loss(a: Analysis, node: fx.Node, layer: nn.Module) -> Value:
    for dims in a.operands(node):
        for dim in dims:
            fix(dim)
    return a.data(node.meta["spec"])


@layer_rule(BuildOutput)
def build_output(a: Analysis, node: fx.Node, layer: nn.Module) -> Value:
    return None
