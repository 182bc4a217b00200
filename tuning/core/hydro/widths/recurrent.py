"""Rules for recurrent layers and PyTorch's multi-head attention, whose weights are packed."""

from math import sqrt
from typing import Any

from torch import fx, nn

from tuning.core.hydro.widths.analysis import Analysis, Dims, Value, layer_rule
from tuning.core.hydro.widths.atoms import Dim, fresh, mark_count, size_of, split_product, unify, widen
from tuning.core.hydro.widths.layers import bias, operand

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1, "RNN_TANH": 1, "RNN_RELU": 1}


@layer_rule(nn.RNNBase)
def recurrent(a: Analysis, node: fx.Node, layer: Any) -> Value:
    name, x = str(node.target), operand(a, node, 0)
    gates = _GATES[layer.mode]
    hidden = fresh(layer.hidden_size, width=True)
    state = fresh(layer.proj_size, width=True) if layer.proj_size else hidden
    directions = 2 if layer.bidirectional else 1
    source = x[-1]
    for depth in range(layer.num_layers):
        for suffix in ("", "_reverse")[:directions]:
            end = f"l{depth}{suffix}"
            _gate_uses(a, node, name, end, source, state, hidden, gates)
            if layer.proj_size:
                a.match(name, **{f"weight_hr_{end}": [state, hidden]})
                _packed(a, node, name, f"weight_hr_{end}", hidden, state, layer.hidden_size)
        source = state * directions
    a.resize(name, input_size=x[-1], hidden_size=hidden)
    if layer.proj_size:
        a.resize(name, proj_size=state)
    sequence, last = node.meta["spec"]
    outputs = [*x[:-1], state * directions]
    if not isinstance(last, tuple):
        states: Value = [*a.data(last)[:-1], state]
    else:
        states = ([*a.data(last[0])[:-1], state], [*a.data(last[1])[:-1], hidden])
    _unite_initial(a, node, [state, hidden])
    return outputs, states


def _unite_initial(a: Analysis, node: fx.Node, widths: list[Dim]) -> None:
    given = node.args[1] if len(node.args) > 1 else node.kwargs.get("hx")
    parts = given if isinstance(given, (tuple, list)) else [given]
    for part, width in zip(parts, widths, strict=False):
        value = a.values.get(part) if isinstance(part, fx.Node) else None
        for dims, size in zip(value if isinstance(value, tuple) else [value], widths, strict=False):
            if isinstance(dims, list):
                unify(dims[-1], size if isinstance(value, tuple) else width)


def _gate_uses(
    a: Analysis, node: fx.Node, name: str, end: str, source: Dim, state: Dim, hidden: Dim, gates: int
) -> None:
    rows = hidden * gates
    for kind, read in (("ih", source), ("hh", state)):
        a.match(name, **{f"weight_{kind}_{end}": [rows, read]})
        _packed(a, node, name, f"weight_{kind}_{end}", read, hidden, size_of(hidden))
        bias(a, node, name, rows, f"bias_{kind}_{end}")


def _packed(
    a: Analysis, node: fx.Node, name: str, attribute: str, read: Dim, write: Dim, elements: int
) -> None:
    for dim in (read, write):
        widen(dim)
        a.total(dim, name)
    a.use(
        f"{name}.{attribute}", node, "matrix",
        fan_in=read, fan_out=write, default="uniform", bound=1.0 / sqrt(elements),
    )  # fmt: skip


@layer_rule(nn.RNNCellBase)
def cell(a: Analysis, node: fx.Node, layer: Any) -> Value:
    name, x = str(node.target), operand(a, node, 0)
    hidden = fresh(layer.hidden_size, width=True)
    rows = hidden * (layer.weight_hh.shape[0] // layer.hidden_size)
    for kind, read in (("ih", x[-1]), ("hh", hidden)):
        a.match(name, **{f"weight_{kind}": [rows, read]})
        _packed(a, node, name, f"weight_{kind}", read, hidden, layer.hidden_size)
        bias(a, node, name, rows, f"bias_{kind}")
    a.resize(name, input_size=x[-1], hidden_size=hidden)
    _unite_initial(a, node, [hidden, hidden])
    state = [*x[:-1], hidden]
    return (state, state) if isinstance(node.meta["spec"], tuple) else state


@layer_rule(nn.MultiheadAttention)
def multihead_attention(a: Analysis, node: fx.Node, layer: nn.MultiheadAttention) -> Value:
    name = str(node.target)
    query, key, value = (operand(a, node, i, part) for i, part in enumerate(("query", "key", "value")))
    width = query[-1]
    heads, head_size = split_product(width, [layer.num_heads, layer.head_dim])
    widen(width)
    mark_count(heads)
    _projections(a, node, name, layer, [width, key[-1], value[-1]])
    a.match(f"{name}.out_proj", weight=[width, width], bias=[width])
    _packed(a, node, f"{name}.out_proj", "weight", width, width, layer.embed_dim)
    if a.has(f"{name}.out_proj", "bias"):
        bias(a, node, f"{name}.out_proj", width)
    a.resize(name, embed_dim=width, kdim=key[-1], vdim=value[-1], num_heads=heads, head_dim=head_size)
    a.resize(f"{name}.out_proj", in_features=width, out_features=width)
    a.logits.append((node, head_size, 1.0 / sqrt(layer.head_dim)))
    weights = node.meta["spec"][1]
    return [*query[:-1], width], (None if weights is None else a.data(weights))


def _projections(a: Analysis, node: fx.Node, name: str, layer: nn.MultiheadAttention, sources: Dims) -> None:
    width = sources[0]
    if layer._qkv_same_embed_dim:
        for source in sources[1:]:
            unify(width, source)
        a.match(name, in_proj_weight=[width * 3, width])
        used = [("in_proj_weight", width, 4 * layer.embed_dim)]
    else:
        used = []
        for part, source in zip("qkv", sources, strict=True):
            a.match(name, **{f"{part}_proj_weight": [width, source]})
            used.append((f"{part}_proj_weight", source, layer.embed_dim + size_of(source)))
    for attribute, source, fans in used:
        for dim in (width, source):
            widen(dim)
            a.total(dim, name)
        a.use(
            f"{name}.{attribute}", node, "matrix",
            fan_in=source, fan_out=width, default="uniform", bound=sqrt(6.0 / fans),
        )  # fmt: skip
    bias(a, node, name, width * 3, "in_proj_bias")
    for extra in ("bias_k", "bias_v"):
        if a.has(name, extra):
            dims = a.dims_of(f"{name}.{extra}")
            unify(dims[-1], width)
            a.use(f"{name}.{extra}", node, "vector", fan_out=width, default="measured")
