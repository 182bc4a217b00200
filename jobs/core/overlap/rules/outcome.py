"""What a rule sees of an operator, and what it says: how to run it per tile, or why it cannot."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.core.overlap.layouts import Layout
from jobs.core.overlap.operations import Operation, Ref, TensorFact, refs

Place = Layout | None
"""Where the batch lies in a value; None for a value that all tiles share."""


@dataclass(frozen=True)
class Combine:
    """The whole is the sum, maximum or minimum of the tiles' results, each times its share if `weighted`."""

    how: str = "sum"
    weighted: bool = False


@dataclass(frozen=True)
class Call:
    """An operator with its arguments for a tile."""

    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Tiling:
    """Run the operator once for each tile.

    Attributes:
        results: where the batch lies in each result, or how the tiles' results are combined.
        needs: operands of which a tile takes its part; every other operand it takes whole.
        call: arguments for a tile of so many samples, where they differ from the program's.
    """

    results: tuple[Place | Combine, ...]
    needs: Mapping[str, Layout]
    call: Callable[[int], Call] | None = None


@dataclass(frozen=True)
class Whole:
    """Run the operator once for the whole batch; `keeps` says where the batch lies in its first result."""

    reason: str
    keeps: Layout | None = None


Outcome = Tiling | Whole


@dataclass(frozen=True)
class View:
    """An operator, the batch size, and what is known of its operands."""

    operation: Operation
    batch: int
    facts: Callable[[Ref], TensorFact | None]
    places: Callable[[Ref], Place]
    tensors: tuple[Ref, ...] = field(default=())

    def shape(self, ref: Ref) -> tuple[int, ...]:
        """The whole shape of an operand."""
        fact = self.facts(ref)
        return () if fact is None or fact.shape is None else fact.shape

    def argument(self, position: int, default: Any = None) -> Any:
        """A positional argument, or its default where it was left out."""
        return self.operation.args[position] if position < len(self.operation.args) else default

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of the first result."""
        fact = self.operation.results[0]
        return () if fact is None or fact.shape is None else fact.shape

    @property
    def tiled(self) -> list[tuple[Ref, Layout]]:
        """The operands that lie in tiles, each once."""
        found = dict.fromkeys(refs((self.operation.args, dict(self.operation.kwargs))))
        placed = ((ref, self.places(ref)) for ref in found)
        return [(ref, place) for ref, place in placed if place is not None]

    def with_arguments(self, changed: Mapping[int, Any], target: str | None = None) -> Call:
        """The operator with some positional arguments replaced."""
        args = list(self.operation.args)
        for position, value in changed.items():
            args[position] = value
        return Call(target or self.operation.target, tuple(args), self.operation.kwargs)


Rule = Callable[[View], Outcome]

DIFFERENT = "its operands have the batch in different dimensions"
UNKNOWN = "no rule says what this operator does with the batch"
ALONG = "works along the batch"


def same_place(view: View) -> Layout | None:
    """The one layout of all tiled operands, or None if they differ."""
    places = {place for _, place in view.tiled}
    return places.pop() if len(places) == 1 else None


def positive(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    return dim + rank if dim < 0 else dim
