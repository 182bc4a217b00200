"""The heat map of devices: how slow each one is, in few levels, drawn with one path per level and node."""

import math
from collections.abc import Sequence
from typing import NamedTuple

# Lowest slowdown (time over healthy time) of each level; below the first a device is at its usual speed.
BOUNDS = (1.1, 1.2, 1.5, 2.0)
LEVELS = ("as usual", "1.1 times", "1.2 times", "1.5 times", "twice as slow, or slower")
UNKNOWN, LOST = "unknown", "lost"


class Cell(NamedTuple):
    """A device: its level by name of a class, and whether it is kept out of use."""

    level: str
    is_out: bool = False


class Tile(NamedTuple):
    """A node's drawing: its size in cells, (class, path) of each level, crosses on those out of use."""

    columns: int
    rows: int
    paths: list[tuple[str, str]]
    crosses: str


def level_of(slowdown: float | None) -> str:
    """Return the class of a slowdown: `h0` as usual to `h4`; unknown without a measurement."""
    if slowdown is None or not math.isfinite(slowdown):
        return UNKNOWN
    return f"h{sum(slowdown >= bound for bound in BOUNDS)}"


def tile(cells: Sequence[Cell]) -> Tile:
    """Return a node's cells as paths on a unit grid, nearly square, row by row."""
    columns = max(math.ceil(math.sqrt(len(cells) * 1.6)), 1)
    drawn: dict[str, list[str]] = {}
    crosses = []
    for index, cell in enumerate(cells):
        row, column = divmod(index, columns)
        drawn.setdefault(cell.level, []).append(f"M{column} {row}h.9v.9h-.9z")
        if cell.is_out:
            crosses.append(f"M{column}.2 {row}.2l.5 .5m0-.5l-.5 .5")
    rows = max(math.ceil(len(cells) / columns), 1)
    return Tile(
        columns, rows, [(level, "".join(paths)) for level, paths in sorted(drawn.items())], "".join(crosses)
    )
