"""Shapes: dimension numbers and sizes of one trial, translated to the fused layouts."""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tuning.core.hydro.errors import FuseError
from tuning.core.hydro.families.reduction import positive
from tuning.core.hydro.fused_graph import Fuser, Layout, Value, function_rule, module_rule, nodes_of
from tuning.core.hydro.gradient_order import with_ordered_gradient


def shape_of(value: Tensor) -> torch.Size:
    """Shape in one trial of ``(F, N, ...)``."""
    return value.shape[1:]


def packed_size(value: Tensor, dim: int, trials: int) -> int:
    """Size in one trial of a dimension of ``(N, F * C, ...)``."""
    return value.shape[dim] // trials if dim == 1 else value.shape[dim]


def first_size(value: Tensor, dim: int) -> int:
    """Size in one trial of a dimension of ``(F, N, ...)``."""
    return value.shape[dim + 1]


def numel_of(value: Tensor) -> int:
    """Number of elements of one trial."""
    return value.numel() // value.shape[0]


@function_rule(torch.Tensor.size)
def size(fuser: Fuser, function: Any, input: Value, dim: int | None = None) -> Value:
    if dim is None:
        return Value(fuser.emit(shape_of, fuser.first(input)), Layout.SHARED)
    at = positive(dim, fuser.rank(input))[0]
    if input.layout is Layout.PACKED:
        return Value(fuser.emit(packed_size, input.node, at, fuser.trials), Layout.SHARED)
    return Value(fuser.emit(first_size, fuser.first(input), at), Layout.SHARED)


@function_rule(torch.Tensor.numel, torch.numel, torch.Tensor.nelement)
def numel(fuser: Fuser, function: Any, input: Value) -> Value:
    return Value(fuser.emit(numel_of, fuser.first(input)), Layout.SHARED)


@function_rule(torch.Tensor.dim, torch.Tensor.ndimension)
def dim(fuser: Fuser, function: Any, input: Value) -> int:
    return fuser.rank(input)


@function_rule(getattr)
def attribute(fuser: Fuser, function: Any, input: Value, name: str) -> Any:
    if name == "shape":
        return size(fuser, torch.Tensor.size, input)
    if name == "ndim":
        return fuser.rank(input)
    if name in ("device", "dtype", "layout", "is_cuda"):
        return Value(fuser.emit(getattr, input.node, name), Layout.SHARED)
    if name in ("T", "mT"):
        return transpose(fuser, torch.transpose, input, -2, -1) if fuser.rank(input) > 1 else input
    raise FuseError(f"the attribute {name} of a trial's tensor cannot be fused: avoid it in forward()")


def reshaped(value: Tensor, *sizes: int) -> Tensor:
    """(F, ...) to (F, *sizes)."""
    return value.reshape(value.shape[0], *sizes)


def _sizes(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes given one by one or as one sequence."""
    if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
        return tuple(sizes[0])
    return sizes


@function_rule(torch.Tensor.view, torch.Tensor.reshape, torch.reshape)
def reshape(fuser: Fuser, function: Any, input: Value, *sizes: Any, shape: Any = None) -> Any:
    if shape is not None:
        sizes = (shape,)
    if len(sizes) == 1 and isinstance(sizes[0], torch.dtype):
        raise FuseError("view(dtype) cannot be fused: use .to(dtype)")
    if len(sizes) == 1 and isinstance(sizes[0], Value) and isinstance(sizes[0].example, torch.Size):
        return Value(fuser.emit(reshaped_as, fuser.first(input), sizes[0].node), Layout.FIRST)
    return Value(fuser.emit(reshaped, fuser.first(input), *nodes_of(_sizes(sizes))), Layout.FIRST)


def reshaped_as(value: Tensor, shape: torch.Size) -> Tensor:
    """(F, ...) to (F, *shape)."""
    return value.reshape(value.shape[0], *shape)


@function_rule(torch.Tensor.view_as, torch.Tensor.reshape_as)
def reshape_as(fuser: Fuser, function: Any, input: Value, other: Value) -> Value:
    shape = fuser.function(torch.Tensor.size, (other,), {})
    return Value(fuser.emit(reshaped_as, fuser.first(input), shape.node), Layout.FIRST)


@function_rule(torch.flatten, torch.Tensor.flatten)
def flatten(fuser: Fuser, function: Any, input: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    rank = fuser.rank(input)
    if rank == 0:
        return fuser.function(torch.reshape, (input, 1), {})
    start, end = (positive(dim, rank)[0] for dim in (start_dim, end_dim))
    if input.layout is Layout.PACKED and start >= 1:
        # The channels of a trial lie together, so (N, F * C, ...) becomes (N, F * features).
        ordered = fuser.emit(with_ordered_gradient, input.node)
        return Value(fuser.emit(torch.flatten, ordered, start, end), Layout.PACKED)
    return Value(fuser.emit(torch.flatten, fuser.first(input), start + 1, end + 1), Layout.FIRST)


@module_rule(nn.Flatten)
def flatten_layer(fuser: Fuser, module: nn.Flatten, path: str, input: Value) -> Any:
    return fuser.function(torch.flatten, (input, module.start_dim, module.end_dim), {})


@module_rule(nn.Unflatten)
def unflatten_layer(fuser: Fuser, module: nn.Unflatten, path: str, input: Value) -> Any:
    return fuser.function(torch.unflatten, (input, module.dim, tuple(module.unflattened_size)), {})


@function_rule(torch.unflatten, torch.Tensor.unflatten)
def unflatten(fuser: Fuser, function: Any, input: Value, dim: int, sizes: Any) -> Value:
    at = positive(dim, fuser.rank(input))[0] + 1
    return Value(fuser.emit(torch.unflatten, fuser.first(input), at, nodes_of(tuple(sizes))), Layout.FIRST)


@function_rule(torch.permute, torch.Tensor.permute)
def permute(fuser: Fuser, function: Any, input: Value, *dims: Any, **kwargs: Any) -> Value:
    order = positive(_sizes(dims or (kwargs["dims"],)), fuser.rank(input))
    moved = (0, *(dim + 1 for dim in order))
    return Value(fuser.emit(torch.permute, fuser.first(input), moved), Layout.FIRST)


@function_rule(torch.transpose, torch.Tensor.transpose, torch.swapaxes, torch.Tensor.swapaxes)
def transpose(fuser: Fuser, function: Any, input: Value, dim0: int, dim1: int) -> Value:
    one, two = positive((dim0, dim1), fuser.rank(input))
    if input.layout is Layout.PACKED and min(one, two) >= 2:
        return Value(fuser.emit(torch.transpose, input.node, one, two), Layout.PACKED)
    return Value(fuser.emit(torch.transpose, fuser.first(input), one + 1, two + 1), Layout.FIRST)


@function_rule(torch.t, torch.Tensor.t)
def t(fuser: Fuser, function: Any, input: Value) -> Value:
    return transpose(fuser, torch.transpose, input, 0, 1) if fuser.rank(input) == 2 else input


@function_rule(torch.movedim, torch.Tensor.movedim)
def movedim(fuser: Fuser, function: Any, input: Value, source: Any, destination: Any) -> Value:
    rank = fuser.rank(input)
    moved = [tuple(dim + 1 for dim in positive(dims, rank)) for dims in (source, destination)]
    return Value(fuser.emit(torch.movedim, fuser.first(input), *moved), Layout.FIRST)


@function_rule(torch.unsqueeze, torch.Tensor.unsqueeze)
def unsqueeze(fuser: Fuser, function: Any, input: Value, dim: int) -> Value:
    at = positive(dim, fuser.rank(input) + 1)[0]
    if input.layout is Layout.PACKED and at >= 2:
        return Value(fuser.emit(torch.unsqueeze, input.node, at), Layout.PACKED)
    return Value(fuser.emit(torch.unsqueeze, fuser.first(input), at + 1), Layout.FIRST)


@function_rule(torch.squeeze, torch.Tensor.squeeze)
def squeeze(fuser: Fuser, function: Any, input: Value, dim: Any = None) -> Value:
    if dim is None:
        return Value(fuser.emit(squeezed, fuser.first(input)), Layout.FIRST)
    at = positive(dim, fuser.rank(input))
    if input.layout is Layout.PACKED and min(at) >= 2:
        return Value(fuser.emit(torch.squeeze, input.node, at), Layout.PACKED)
    return Value(fuser.emit(torch.squeeze, fuser.first(input), tuple(i + 1 for i in at)), Layout.FIRST)


def squeezed(value: Tensor) -> Tensor:
    """Drop every dimension of size one but the trials'."""
    return value.squeeze(tuple(range(1, value.dim())))


def expanded(value: Tensor, *sizes: int) -> Tensor:
    """(F, ...) to (F, *sizes); -1 keeps a size, further dimensions are added at the left."""
    missing = len(sizes) - value.dim() + 1
    return value.reshape(value.shape[0], *(1,) * missing, *value.shape[1:]).expand(-1, *sizes)


@function_rule(torch.Tensor.expand)
def expand(fuser: Fuser, function: Any, input: Value, *sizes: Any) -> Value:
    if len(sizes) == 1 and isinstance(sizes[0], Value) and isinstance(sizes[0].example, torch.Size):
        return Value(fuser.emit(expanded_to, fuser.first(input), sizes[0].node), Layout.FIRST)
    return Value(fuser.emit(expanded, fuser.first(input), *nodes_of(_sizes(sizes))), Layout.FIRST)


def expanded_to(value: Tensor, shape: torch.Size) -> Tensor:
    """(F, ...) to (F, *shape)."""
    return expanded(value, *shape)


@function_rule(torch.Tensor.expand_as)
def expand_as(fuser: Fuser, function: Any, input: Value, other: Value) -> Value:
    shape = fuser.function(torch.Tensor.size, (other,), {})
    return Value(fuser.emit(expanded_to, fuser.first(input), shape.node), Layout.FIRST)


def repeated(value: Tensor, *counts: int) -> Tensor:
    """Each trial of ``(F, ...)`` repeated ``counts`` times."""
    missing = len(counts) - value.dim() + 1
    return value.reshape(value.shape[0], *(1,) * missing, *value.shape[1:]).repeat(1, *counts)


@function_rule(torch.Tensor.repeat)
def repeat(fuser: Fuser, function: Any, input: Value, *counts: Any) -> Value:
    return Value(fuser.emit(repeated, fuser.first(input), *nodes_of(_sizes(counts))), Layout.FIRST)


@function_rule(torch.cat, torch.concat, torch.concatenate)
def cat(fuser: Fuser, function: Any, tensors: Any, dim: int = 0, **kwargs: Any) -> Value:
    values = list(tensors)
    at = positive(kwargs.get("axis", dim), fuser.rank(values[0]))[0]
    layouts = {value.layout for value in values}
    if layouts == {Layout.PACKED} and at >= 1:
        if at == 1:
            nodes = [value.node for value in values]
            return Value(fuser.emit(joined_channels, nodes, fuser.trials), Layout.PACKED)
        return Value(fuser.emit(torch.cat, [value.node for value in values], at), Layout.PACKED)
    return Value(fuser.emit(torch.cat, [fuser.first(value) for value in values], at + 1), Layout.FIRST)


def joined_channels(tensors: list[Tensor], trials: int) -> Tensor:
    """Concatenation along the channels of each trial of ``(N, F * C, ...)``."""
    parts = [t.view(t.shape[0], trials, t.shape[1] // trials, *t.shape[2:]) for t in tensors]
    return torch.cat(parts, 2).flatten(1, 2)


@function_rule(torch.stack)
def stack(fuser: Fuser, function: Any, tensors: Any, dim: int = 0) -> Value:
    values = list(tensors)
    at = positive(dim, fuser.rank(values[0]) + 1)[0] + 1
    return Value(fuser.emit(torch.stack, [fuser.first(value) for value in values], at), Layout.FIRST)


@function_rule(
    torch.chunk,
    torch.Tensor.chunk,
    torch.split,
    torch.Tensor.split,
    torch.tensor_split,
    torch.Tensor.tensor_split,
    torch.split_with_sizes,
    torch.Tensor.split_with_sizes,
)
def split(fuser: Fuser, function: Any, input: Value, sections: Any, dim: int = 0) -> Value:
    form = getattr(torch, function.__name__)
    at = positive(dim, fuser.rank(input))[0]
    if input.layout is Layout.PACKED and at >= 2:
        return Value(fuser.emit(form, input.node, nodes_of(sections), at), Layout.PACKED)
    return Value(fuser.emit(form, fuser.first(input), nodes_of(sections), at + 1), Layout.FIRST)


@function_rule(operator.getitem, torch.Tensor.__getitem__)
def getitem(fuser: Fuser, function: Any, input: Any, index: Any) -> Any:
    if not isinstance(input, Value):
        return input[index]
    if not isinstance(input.example, Tensor):
        return Value(fuser.emit(operator.getitem, input.node, nodes_of(index)), input.layout)
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, Value) and part.is_per_trial for part in parts):
        return fuser.vectorised(operator.getitem, (input, index), {})
    spatial = len(parts) > 2 and all(part == slice(None) for part in parts[:2])
    if input.layout is Layout.PACKED and spatial and all(_is_plain(part) for part in parts[2:]):
        return Value(fuser.emit(operator.getitem, input.node, nodes_of(tuple(parts))), Layout.PACKED)
    if not all(_is_plain(part) for part in parts) and _splits_advanced(parts):
        return fuser.vectorised(operator.getitem, (input, index), {})
    moved = (slice(None), *nodes_of(tuple(parts)))
    return Value(fuser.emit(operator.getitem, fuser.first(input), moved), Layout.FIRST)


def _is_plain(part: Any) -> bool:
    if isinstance(part, Value):
        return isinstance(part.example, int)
    return part is None or part is Ellipsis or isinstance(part, int | slice)


def _splits_advanced(parts: tuple[Any, ...]) -> bool:
    """Whether several indices are tensors or ints: what is before them decides where their result stands."""
    positions = [
        position
        for position, part in enumerate(parts)
        if not _is_plain(part) or isinstance(part, int) or (isinstance(part, Value) and _is_plain(part))
    ]
    return len(positions) > 1


@function_rule(torch.narrow, torch.Tensor.narrow, torch.select, torch.Tensor.select)
def narrow(fuser: Fuser, function: Any, input: Value, dim: int, *rest: Any) -> Value:
    form = getattr(torch, function.__name__)
    at = positive(dim, fuser.rank(input))[0] + 1
    return Value(fuser.emit(form, fuser.first(input), at, *nodes_of(rest)), Layout.FIRST)


@function_rule(torch.tril, torch.Tensor.tril, torch.triu, torch.Tensor.triu)
def triangle(fuser: Fuser, function: Any, input: Value, diagonal: int = 0) -> Value:
    return Value(fuser.emit(function, fuser.first(input), diagonal), Layout.FIRST)


@function_rule(F.normalize)
def normalize(
    fuser: Fuser,
    function: Any,
    input: Value,
    p: float = 2.0,
    dim: int = 1,
    eps: float = 1e-12,
    out: None = None,
) -> Value:
    at = positive(dim, fuser.rank(input))[0] + 1
    return Value(fuser.emit(F.normalize, fuser.first(input), p, at, eps), Layout.FIRST)


@function_rule(F.glu)
def glu(fuser: Fuser, function: Any, input: Value, dim: int = -1) -> Value:
    at = positive(dim, fuser.rank(input))[0] + 1
    return Value(fuser.emit(F.glu, fuser.first(input), at), Layout.FIRST)
