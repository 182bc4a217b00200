"""Where the batch lies in a tensor, and what a tile of the batch is then.

After a view a dimension may be a product, for example tokens = batch x sequence. A dimension of size
outer * batch * inner is cut into tiles of outer * part * inner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Layout:
    """The batch is the middle factor of dimension `dim`: size = outer * batch * inner."""

    dim: int
    outer: int = 1
    inner: int = 1

    def shape(self, whole: Sequence[int], part: int) -> tuple[int, ...]:
        """The shape of a tile with `part` samples."""
        return (*whole[: self.dim], self.outer * part * self.inner, *whole[self.dim + 1 :])

    def at(self, dim: int) -> "Layout":
        """The same factors in another dimension."""
        return Layout(dim, self.outer, self.inner)

    def fits(self, shape: Sequence[int], batch: int) -> bool:
        """Whether a tensor of this shape has the batch there."""
        return self.dim < len(shape) and shape[self.dim] == self.outer * batch * self.inner


def tile_sizes(batch: int, tiles: int) -> tuple[int, ...]:
    """As equal as possible, the larger ones first."""
    quotient, rest = divmod(batch, tiles)
    return tuple(quotient + (index < rest) for index in range(tiles))


def after_view(layout: Layout, before: Sequence[int], after: Sequence[int], batch: int) -> Layout | None:
    """Where the batch lies after a view, or None where it is no factor of a single dimension there."""
    leading = prod(before[: layout.dim]) * layout.outer
    trailing = layout.inner * prod(before[layout.dim + 1 :])
    passed = 1
    for dim, size in enumerate(after):
        if passed and leading % passed == 0:
            outer = leading // passed
            inner, rest = divmod(size, outer * batch)
            if not rest and inner and inner * prod(after[dim + 1 :]) == trailing:
                return Layout(dim, outer, inner)
        passed *= size
    return None
