"""Functions along a dimension: their dimension numbers move past the trials."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tuning.core.hydro.fused_graph import Fuser, Layout, Value, function_rule, nodes_of
from tuning.core.hydro.gradient_order import with_ordered_gradient

_REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "std",
    "var",
    "amax",
    "amin",
    "logsumexp",
    "any",
    "all",
    "argmax",
    "argmin",
    "nansum",
    "nanmean",
    "count_nonzero",
]
_ALONG = [
    "softmax",
    "log_softmax",
    "cumsum",
    "cumprod",
    "sort",
    "argsort",
    "unbind",
    "logcumsumexp",
    "cummax",
    "cummin",
]


def _both(names: list[str]) -> dict[Any, Any]:
    return {
        getattr(home, name): getattr(torch, name)
        for home in (torch, torch.Tensor)
        for name in names
        if hasattr(home, name)
    }


_REDUCING = _both(_REDUCTIONS)
_EXTREMES: dict[Any, Any] = _both(["max", "min"])
_MOVING = {**_both(_ALONG), F.softmax: F.softmax, F.log_softmax: F.log_softmax, F.softmin: F.softmin}


def positive(dims: Any, rank: int) -> tuple[int, ...]:
    """Dimension numbers of one trial, counted from the left."""
    listed = dims if isinstance(dims, tuple | list) else (dims,)
    return tuple(int(dim) % rank for dim in listed)


def all_of_each(function: Any, input: Tensor, **options: Any) -> Tensor:
    """A reduction of everything that a trial holds: ``(F, ...)`` to ``(F,)``."""
    return function(input.flatten(1), dim=1, **options)


@function_rule(*_REDUCING)
def reduction(fuser: Fuser, function: Any, input: Value, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    form, rank = _REDUCING[function], fuser.rank(input)
    dim = kwargs.pop("axis", dim)
    if isinstance(dim, bool) or rank == 0:
        return fuser.vectorised(form, (input, dim, *args), kwargs)
    if dim is None or dim == ():
        if args or kwargs.pop("keepdim", False):
            return fuser.vectorised(form, (input, dim, *args), kwargs)
        return Value(fuser.emit(all_of_each, form, fuser.first(input), **kwargs), Layout.FIRST)
    dims = positive(dim, rank)
    if input.layout is Layout.PACKED and min(dims) >= 2:
        moved: Any = dims if isinstance(dim, tuple | list) else dims[0]
        # Reducing the space of (N, F * C, ...) leaves the channels where they are.
        ordered = fuser.emit(with_ordered_gradient, input.node)
        return Value(fuser.emit(form, ordered, moved, *args, **kwargs), Layout.PACKED)
    moved = tuple(d + 1 for d in dims) if isinstance(dim, tuple | list) else dims[0] + 1
    return Value(fuser.emit(form, fuser.first(input), moved, *args, **kwargs), Layout.FIRST)


@function_rule(*_EXTREMES)
def extreme(fuser: Fuser, function: Any, input: Value, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    form = _EXTREMES[function]
    if isinstance(dim, Value) or "other" in kwargs:
        pair = {torch.max: torch.maximum, torch.min: torch.minimum}[form]
        return fuser.function(pair, (input, kwargs.get("other", dim)), {})
    if dim is None:
        whole = {torch.max: torch.amax, torch.min: torch.amin}[form]
        return Value(fuser.emit(all_of_each, whole, fuser.first(input)), Layout.FIRST)
    moved = positive(dim, fuser.rank(input))[0] + 1
    return Value(fuser.emit(form, fuser.first(input), moved, *args, **kwargs), Layout.FIRST)


@function_rule(*_MOVING)
def along(fuser: Fuser, function: Any, input: Value, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    rank, form = fuser.rank(input), _MOVING[function]
    kwargs = {key: value for key, value in kwargs.items() if key != "_stacklevel"}
    if rank == 0 or (dim is None and form in (F.softmax, F.log_softmax, F.softmin)):
        return fuser.vectorised(form, (input, dim, *args), kwargs)
    if dim is None or isinstance(dim, bool):
        default = {torch.unbind: 0}.get(form, -1)
        args, dim = ((dim, *args) if isinstance(dim, bool) else args), default
    moved = positive(dim, rank)[0] + 1
    return Value(fuser.emit(form, fuser.first(input), moved, *args, **nodes_of(kwargs)), Layout.FIRST)


@function_rule(torch.flip, torch.Tensor.flip)
def flip(fuser: Fuser, function: Any, input: Value, *dims: Any, **kwargs: Any) -> Value:
    listed = kwargs["dims"] if "dims" in kwargs else dims[0] if isinstance(dims[0], tuple | list) else dims
    moved = tuple(dim + 1 for dim in positive(listed, fuser.rank(input)))
    return Value(fuser.emit(torch.flip, fuser.first(input), moved), Layout.FIRST)
