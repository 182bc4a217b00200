"""Tensors inside what models take and return: tuples, dictionaries, named tuples, data classes."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors of a structure, in order."""
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in _items(value) for tensor in tensors_in(item)]


def map_tensors(function: Callable[[Tensor], Any], value: Any) -> Any:
    """The same structure, of the same classes, with every tensor replaced."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        items = {key: map_tensors(function, item) for key, item in value.items()}
        return items if type(value) is dict else type(value)(**items)
    if isinstance(value, tuple | list):
        parts = [map_tensors(function, item) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return type(value)(**{name: map_tensors(function, item) for name, item in fields.items()})
    return value


def _items(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, tuple | list):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return []
