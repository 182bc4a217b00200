"""A captured program without its framework: operators by name, shapes of what they produce."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

POINTWISE = "pointwise"
RANDOM = "random"
MUTATES = "mutates"
COLLECTIVE = "collective"
WAIT = "wait"
BARRIER = "barrier"
"""Traits of operators. A barrier reads a value on the host, or does something of which nothing is known."""


@dataclass(frozen=True)
class Ref:
    """A value: the result of an operator or an input of the program, by name."""

    name: str


@dataclass(frozen=True)
class TensorFact:
    """Shape and item size of a tensor; `shape` is None where it is known only at run time."""

    shape: tuple[int, ...] | None
    item_bytes: int
    dtype: str = "float32"

    @property
    def items(self) -> int:
        total = 1
        for size in self.shape or ():
            total *= size
        return total

    @property
    def size_bytes(self) -> int:
        return self.items * self.item_bytes


@dataclass(frozen=True)
class Operation:
    """One operator of the program.

    Attributes:
        target: the operator, for example `aten.mm.default`, or `getitem`.
        args, kwargs: values as `Ref`, everything else as it is.
        results: what it produces; None for what is no tensor.
        single: it produces the tensor itself and not a tuple of one.
        tile: the tile it belongs to, or None.
        source: the operator of the captured program that it comes from.
    """

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[TensorFact | None, ...] = (None,)
    single: bool = True
    traits: frozenset[str] = frozenset()
    tile: int | None = None
    source: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values it takes, each once."""
        return tuple(dict.fromkeys(ref.name for ref in refs((self.args, dict(self.kwargs)))))


@dataclass(frozen=True)
class CapturedProgram:
    """Inputs with their facts, operators in program order, and what comes out (nested values)."""

    inputs: Mapping[str, TensorFact]
    operations: tuple[Operation, ...]
    outputs: Any


def refs(value: Any) -> Iterator[Ref]:
    """Every value named in nested arguments."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from refs(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from refs(item)


def replace_refs(value: Any, by: Callable[[Ref], Any]) -> Any:
    """Nested arguments with every value replaced."""
    if isinstance(value, Ref):
        return by(value)
    if isinstance(value, list):
        return [replace_refs(item, by) for item in value]
    if isinstance(value, tuple):
        return tuple(replace_refs(item, by) for item in value)
    if isinstance(value, Mapping):
        return {key: replace_refs(item, by) for key, item in value.items()}
    return value
