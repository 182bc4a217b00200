"""One form for each operation: function calls become the layers that they stand for.

``F.relu``, ``torch.relu`` and ``x.relu()`` all become ``nn.ReLU``; dropout and attention become layers that
know whether the model trains. Functions that hold weights (``F.linear`` on a bare parameter) stay functions,
so that every parameter keeps the user's name.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import fx, nn

from tuning.core.hydro.errors import TraceError
from tuning.core.hydro.layers import Attention, DropPath, FunctionalBatchNorm
from tuning.core.hydro.tracing.leaves import is_stochastic_depth

Options = dict[str, Any]
Maker = Callable[[Options], nn.Module]


def operation_of(node: fx.Node) -> str:
    """A short name of what a function or method node does, the same for all its spellings: ``add``."""
    if node.op == "call_method":
        return str(node.target)
    return str(getattr(node.target, "__name__", node.target))


def _kept(kind: type[nn.Module], *names: str) -> Maker:
    """A maker that passes the named options on to ``kind`` where they were given."""
    return lambda options: kind(**{name: options[name] for name in names if name in options})


def _pool(kind: type[nn.Module]) -> Maker:
    names = inspect.signature(kind).parameters

    def make(options: Options) -> nn.Module:
        given = {key: value for key, value in options.items() if key in names}
        if given.get("stride", 0) is None:
            del given["stride"]
        return kind(**given)

    return make


_PLAIN: dict[str, Maker] = {
    "relu": _kept(nn.ReLU, "inplace"),
    "relu_": lambda options: nn.ReLU(inplace=True),
    "relu6": _kept(nn.ReLU6, "inplace"),
    "leaky_relu": _kept(nn.LeakyReLU, "negative_slope", "inplace"),
    "elu": _kept(nn.ELU, "alpha", "inplace"),
    "selu": _kept(nn.SELU, "inplace"),
    "gelu": _kept(nn.GELU, "approximate"),
    "silu": _kept(nn.SiLU, "inplace"),
    "mish": _kept(nn.Mish, "inplace"),
    "softplus": _kept(nn.Softplus, "beta", "threshold"),
    "hardtanh": _kept(nn.Hardtanh, "min_val", "max_val", "inplace"),
    "hardswish": _kept(nn.Hardswish, "inplace"),
    "hardsigmoid": _kept(nn.Hardsigmoid, "inplace"),
    "logsigmoid": _kept(nn.LogSigmoid),
    "tanh": _kept(nn.Tanh),
    "sigmoid": _kept(nn.Sigmoid),
    "max_pool1d": _pool(nn.MaxPool1d),
    "max_pool2d": _pool(nn.MaxPool2d),
    "max_pool3d": _pool(nn.MaxPool3d),
    "avg_pool1d": _pool(nn.AvgPool1d),
    "avg_pool2d": _pool(nn.AvgPool2d),
    "avg_pool3d": _pool(nn.AvgPool3d),
    "adaptive_avg_pool1d": _pool(nn.AdaptiveAvgPool1d),
    "adaptive_avg_pool2d": _pool(nn.AdaptiveAvgPool2d),
    "adaptive_avg_pool3d": _pool(nn.AdaptiveAvgPool3d),
    "flatten": lambda options: nn.Flatten(options.get("start_dim", 0), options.get("end_dim", -1)),
}

_DROPOUT: dict[str, type[nn.Module]] = {
    "dropout": nn.Dropout,
    "dropout1d": nn.Dropout1d,
    "dropout2d": nn.Dropout2d,
    "dropout3d": nn.Dropout3d,
    "alpha_dropout": nn.AlphaDropout,
    "feature_alpha_dropout": nn.FeatureAlphaDropout,
}

# Where Python cannot read a signature, and for the spellings as a method of the tensor.
_ORDER: dict[str, tuple[str, ...]] = {
    "gelu": ("input", "approximate"),
    "max_pool1d": ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "max_pool2d": ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "max_pool3d": ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "softplus": ("input", "beta", "threshold"),
    "avg_pool1d": ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"),
    "avg_pool2d": (
        "input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override",
    ),
    "avg_pool3d": (
        "input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override",
    ),
    "adaptive_avg_pool1d": ("input", "output_size"),
    "flatten": ("input", "start_dim", "end_dim"),
    "scaled_dot_product_attention": (
        "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa",
    ),
    "dropout": ("input", "p", "training", "inplace"),
    "relu": ("input", "inplace"),
}  # fmt: skip


def arguments_of(node: fx.Node) -> Options:
    """The node's arguments by parameter name; ``input`` is the first where the signature is unknown.

    Raises ``TraceError`` where neither PyTorch nor this file knows the names.
    """
    order = _ORDER.get(operation_of(node), ("input",))
    if node.op == "call_function" and inspect.isfunction(node.target):
        order = tuple(inspect.signature(node.target).parameters)
        if order[:1] == ("args",):
            order = _ORDER.get(operation_of(node), ("input",))
    if len(node.args) > len(order):
        raise TraceError(f"'{node.name}' calls {operation_of(node)} with arguments that are not understood")
    return {**dict(zip(order, node.args, strict=False)), **node.kwargs}


def canonicalise(root: nn.Module, graph: fx.Graph, evaluation: fx.Graph) -> dict[str, nn.Module]:
    """Replace functions by layers in ``graph``; return the new layers by the name that the graph calls.

    ``evaluation`` is the same forward pass recorded in evaluation mode. Raises ``TraceError`` where the two
    differ in a way that no layer expresses.
    """
    layers: dict[str, nn.Module] = {}
    twins = list(evaluation.nodes)
    if [_kind(node) for node in graph.nodes] != [_kind(node) for node in twins]:
        raise TraceError(_difference(list(graph.nodes), twins))
    modules = dict(root.named_modules())
    names = {node.name: twin.name for node, twin in zip(graph.nodes, twins, strict=True)}
    for node, twin in zip(list(graph.nodes), twins, strict=True):
        if node.op == "call_module":
            _replace_stochastic_depth(node, modules, layers)
            continue
        if node.op not in ("call_function", "call_method"):
            continue
        layer, inputs = _layer_for(node, twin)
        if layer is not None:
            _become_layer(node, layer, inputs, layers)
        elif _written(node, names) != _written(twin, None):
            raise TraceError(
                f"'{node.name}' ({operation_of(node)}, in '{node.meta['owner'] or 'the model'}') differs "
                "between training and evaluation: put the difference into a layer such as nn.Dropout"
            )
    return layers


def _layer_for(node: fx.Node, twin: fx.Node) -> tuple[nn.Module | None, tuple[Any, ...]]:
    name = operation_of(node)
    if name in _DROPOUT:
        options = arguments_of(node)
        if arguments_of(twin).get("training", True):
            return None, ()
        p = options.get("p", 0.5) if options.get("training", True) else 0.0
        return _DROPOUT[name](p, bool(options.get("inplace", False))), (options["input"],)
    if name == "scaled_dot_product_attention":
        return _attention(arguments_of(node), arguments_of(twin))
    if name == "batch_norm" and node.target is F.batch_norm:
        return _batch_norm(arguments_of(node), arguments_of(twin))
    if name in _PLAIN and _is_plain_call(node):
        options = arguments_of(node)
        if any(isinstance(value, fx.Node) for key, value in options.items() if key != "input"):
            return None, ()
        if options.get("return_indices") or len(_nodes_in(options.get("input"))) != 1:
            return None, ()
        return _PLAIN[name](options), (options["input"],)
    return None, ()


def _is_plain_call(node: fx.Node) -> bool:
    if node.op == "call_method":
        return True
    home = getattr(node.target, "__module__", None) or ""
    return home.startswith("torch") or home in ("", "builtins")


def _attention(options: Options, evaluation: Options) -> tuple[nn.Module | None, tuple[Any, ...]]:
    if evaluation.get("dropout_p", 0.0):
        return None, ()
    inputs = (options["query"], options["key"], options["value"], options.get("attn_mask"))
    layer = Attention(
        options.get("dropout_p", 0.0),
        bool(options.get("is_causal", False)),
        options.get("scale"),
        bool(options.get("enable_gqa", False)),
    )
    return layer, inputs


def _batch_norm(options: Options, evaluation: Options) -> tuple[nn.Module | None, tuple[Any, ...]]:
    if (
        not options.get("training", False)
        or evaluation.get("training", False)
        or options.get("momentum", 0.1) is None
    ):
        return None, ()
    layer = FunctionalBatchNorm(options.get("momentum", 0.1), options.get("eps", 1e-5))
    names = ("input", "running_mean", "running_var", "weight", "bias")
    return layer, tuple(options.get(name) for name in names)


def _replace_stochastic_depth(
    node: fx.Node, modules: dict[str, nn.Module], layers: dict[str, nn.Module]
) -> None:
    module = modules.get(str(node.target))
    p = getattr(module, "drop_prob", None)
    if module is not None and is_stochastic_depth(module) and (p is None or isinstance(p, (int, float))):
        named_by_row = getattr(module, "mode", "row") == "row" and getattr(module, "scale_by_keep", True)
        p = p if p is not None else getattr(module, "p", 0.0)
        if named_by_row and not isinstance(module, DropPath):
            _become_layer(node, DropPath(float(p or 0.0)), node.args[:1], layers)


def _become_layer(
    node: fx.Node, layer: nn.Module, inputs: tuple[Any, ...], layers: dict[str, nn.Module]
) -> None:
    name = f"_{type(layer).__name__.lower()}_{len(layers)}"
    layers[name] = layer
    node.op, node.target = "call_module", name
    node.args, node.kwargs = tuple(inputs), {}


def _kind(node: fx.Node) -> tuple[str, str]:
    return node.op, str(node.target) if node.op != "call_function" else operation_of(node)


def _written(node: fx.Node, names: dict[str, str] | None) -> str:
    def name(part: fx.Node) -> str:
        return names[part.name] if names else part.name

    return repr(fx.node.map_arg((node.args, node.kwargs), lambda part: f"%{name(part)}"))


def _nodes_in(value: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(value, found.append)
    return found


def _difference(training: list[fx.Node], evaluation: list[fx.Node]) -> str:
    for ours, theirs in zip(training, evaluation, strict=False):
        if _kind(ours) != _kind(theirs):
            return (
                f"the forward pass differs between training ({operation_of(ours)}) and evaluation "
                f"({operation_of(theirs)}) in '{ours.meta.get('owner') or 'the model'}': "
                "put the difference into layers such as nn.Dropout, or trace a model without it"
            )
    return "the forward pass does more in one of training and evaluation: put the difference into layers"
