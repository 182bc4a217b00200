"""Recurrent layers: time step by time step, each step one batched matrix product for all trials."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.families.dropout import full_mask
from tuning.core.hydro.families.linear import product, product_of_rows
from tuning.core.hydro.fused_graph import Fuser, Layout, Value, module_rule
from tuning.core.hydro.random_streams import RandomStreams

State = tuple[Tensor, ...]


class Direction(NamedTuple):
    """Weights of one direction of one layer: ``(F, gates, in)``, ``(F, gates, H)`` and their biases."""

    input_weight: Tensor
    hidden_weight: Tensor
    input_bias: Tensor | None = None
    hidden_bias: Tensor | None = None
    projection: Tensor | None = None


def lstm_step(gates: Tensor, state: State, direction: Direction) -> State:
    """One step from the input's share of the gates, ``(F, N, 4 H)``; the gates stand in order i, f, g, o."""
    hidden, cell = state
    gates = gates + product(hidden, direction.hidden_weight, direction.hidden_bias)
    i, f, g, o = gates.chunk(4, -1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    hidden = torch.sigmoid(o) * torch.tanh(cell)
    if direction.projection is not None:
        hidden = product(hidden, direction.projection, None)
    return hidden, cell


def gru_step(gates: Tensor, state: State, direction: Direction) -> State:
    """One step from the input's share of the gates, ``(F, N, 3 H)``; the gates stand in order r, z, n."""
    (hidden,) = state
    own = product(hidden, direction.hidden_weight, direction.hidden_bias)
    (r, z, n), (hr, hz, hn) = gates.chunk(3, -1), own.chunk(3, -1)
    candidate = torch.tanh(n + torch.sigmoid(r + hr) * hn)
    return (candidate + torch.sigmoid(z + hz) * (hidden - candidate),)


def tanh_step(gates: Tensor, state: State, direction: Direction) -> State:
    """One step of a plain recurrent layer with tanh."""
    return (torch.tanh(gates + product(state[0], direction.hidden_weight, direction.hidden_bias)),)


def relu_step(gates: Tensor, state: State, direction: Direction) -> State:
    """One step of a plain recurrent layer with ReLU."""
    return (torch.relu(gates + product(state[0], direction.hidden_weight, direction.hidden_bias)),)


_STEPS = {"LSTM": lstm_step, "GRU": gru_step, "RNN_TANH": tanh_step, "RNN_RELU": relu_step}


def run_direction(
    step: Any, input: Tensor, state: State, direction: Direction, backwards: bool
) -> tuple[Tensor, State]:
    """(F, N, T, in) to the hidden states (F, N, T, H) and the last state."""
    gates = product_of_rows(input, direction.input_weight, direction.input_bias).unbind(2)
    hidden = []
    for gates_t in reversed(gates) if backwards else gates:
        state = step(gates_t, state, direction)
        hidden.append(state[0])
    return torch.stack(hidden[::-1] if backwards else hidden, 2), state


def recurrent(
    mode: str,
    directions: list[tuple[Tensor | None, ...]],
    both_ways: bool,
    dropout: float,
    sizes: tuple[int, int],
    streams: RandomStreams,
    input: Tensor,
    time_dim: int,
    start: tuple[Tensor, ...] | None,
) -> tuple[Tensor, Any]:
    """All layers of a recurrent module over ``(F, N, T, in)`` or, for ``time_dim`` 1, ``(F, T, N, in)``.

    ``sizes`` are those of the hidden and of the cell state; ``start`` holds ``(F, layers * ways, N, size)``.
    Masks between layers are drawn over ``(T, N, features)``, as PyTorch does whatever order the user has.
    """
    value = input.transpose(1, 2) if time_dim == 1 else input
    ways = 2 if both_ways else 1
    count = 2 if mode == "LSTM" else 1
    last: list[State] = []
    for layer in range(len(directions) // ways):
        if layer and dropout:
            ordered = value.transpose(1, 2)
            value = (ordered * full_mask(streams, ordered, dropout)).transpose(1, 2)
        outputs = []
        for way in range(ways):
            at = layer * ways + way
            zero = [value.new_zeros(*value.shape[:2], size) for size in sizes[:count]]
            state = tuple(zero) if start is None else tuple(part[:, at] for part in start)
            direction = Direction(*directions[at])  # type: ignore[arg-type]
            output, state = run_direction(_STEPS[mode], value, state, direction, way == 1)
            outputs.append(output)
            last.append(state)
        value = torch.cat(outputs, -1) if ways == 2 else outputs[0]
    final = tuple(torch.stack([state[part] for state in last], 1) for part in range(count))
    return (value.transpose(1, 2) if time_dim == 1 else value), (final if count == 2 else final[0])


@module_rule(nn.LSTM, nn.GRU, nn.RNN)
def recurrent_layer(fuser: Fuser, module: nn.RNNBase, path: str, input: Value, hx: Any = None) -> Value:
    if not isinstance(input.example, Tensor):
        raise FuseError("packed sequences cannot be fused: pad the batch and mask the loss")
    if fuser.rank(input) != 3:
        raise FuseError("a recurrent layer needs a batch dimension here: give it three-dimensional inputs")
    starts = None
    if hx is not None:
        parts = hx if isinstance(hx, tuple | list) else (hx,)
        starts = tuple(fuser.first(part) for part in parts)
    directions = [_tensors(fuser, module, path, suffix) for suffix in _suffixes(module)]
    call = fuser.emit if not (module.dropout and fuser.training) else fuser.write
    node = call(
        recurrent,
        module.mode,
        directions,
        module.bidirectional,
        module.dropout if fuser.training else 0.0,
        (module.proj_size or module.hidden_size, module.hidden_size),
        fuser.streams,
        fuser.first(input),
        2 if module.batch_first else 1,
        starts,
    )
    return Value(node, Layout.FIRST)


def _suffixes(module: nn.RNNBase) -> list[str]:
    ways = ("", "_reverse") if module.bidirectional else ("",)
    return [f"l{layer}{way}" for layer in range(module.num_layers) for way in ways]


def _tensors(fuser: Fuser, module: nn.RNNBase, path: str, suffix: str) -> tuple[fx.Node | None, ...]:
    weights = [fuser.optional(path, f"weight_{part}_{suffix}", (0, 2, 1)) for part in ("ih", "hh")]
    biases: list[fx.Node | None] = [None, None]
    if module.bias:
        biases = [fuser.optional(path, f"bias_{part}_{suffix}") for part in ("ih", "hh")]
    if module.proj_size:
        return (*weights, *biases, fuser.optional(path, f"weight_hr_{suffix}", (0, 2, 1)))
    return (*weights, *biases)


def cell(
    mode: str,
    weights: tuple[Tensor | None, ...],
    hidden_size: int,
    input: Tensor,
    state: tuple[Tensor, ...] | None,
) -> Any:
    """One step of a recurrent cell from ``(F, N, in)``."""
    direction = Direction(*weights)  # type: ignore[arg-type]
    count = 2 if mode == "LSTM" else 1
    if state is None:
        state = tuple(input.new_zeros(*input.shape[:2], hidden_size) for _ in range(count))
    gates = product(input, direction.input_weight, direction.input_bias)
    after = _STEPS[mode](gates, state, direction)
    return after if count == 2 else after[0]


@module_rule(nn.LSTMCell, nn.GRUCell, nn.RNNCell)
def cell_layer(fuser: Fuser, module: nn.RNNCellBase, path: str, input: Value, hx: Any = None) -> Value:
    if fuser.rank(input) != 2:
        raise FuseError("a recurrent cell needs a batch dimension here: give it two-dimensional inputs")
    modes = {"LSTMCell": "LSTM", "GRUCell": "GRU"}
    mode = modes.get(type(module).__name__) or f"RNN_{getattr(module, 'nonlinearity', 'tanh').upper()}"
    weights = [fuser.optional(path, name, (0, 2, 1)) for name in ("weight_ih", "weight_hh")]
    biases = [fuser.optional(path, name) for name in ("bias_ih", "bias_hh")]
    state = None
    if hx is not None:
        state = tuple(fuser.first(part) for part in (hx if isinstance(hx, tuple | list) else (hx,)))
    node = fuser.emit(cell, mode, (*weights, *biases), module.hidden_size, fuser.first(input), state)
    return Value(node, Layout.FIRST)
