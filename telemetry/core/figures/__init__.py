"""Charts as pure functions: plain data in, a Plotly figure out as a dictionary with `data` and `layout`.

Colours are names such as `$c1` or `$good`. A browser replaces them by the tokens of its theme; `paint` does
the same for anyone else, and its result is accepted by `plotly.graph_objects.Figure`.
"""

from telemetry.core.figures.best_so_far import Attempt, TargetMark, best_so_far
from telemetry.core.figures.colours import PALETTES, paint
from telemetry.core.figures.costs import Share, share_points, spending_bar
from telemetry.core.figures.importance import Importance, importance_bars
from telemetry.core.figures.ladder import Mark, rung_ladder
from telemetry.core.figures.learning_curves import Curve, learning_curves
from telemetry.core.figures.timeline import Lane, Link, Span, timeline
from telemetry.core.figures.widths import Layer, Pair, agreement, width_lines

__all__ = [
    "PALETTES",
    "Attempt",
    "Curve",
    "Importance",
    "Lane",
    "Layer",
    "Link",
    "Mark",
    "Pair",
    "Share",
    "Span",
    "TargetMark",
    "agreement",
    "best_so_far",
    "importance_bars",
    "learning_curves",
    "paint",
    "rung_ladder",
    "share_points",
    "spending_bar",
    "timeline",
    "width_lines",
]
