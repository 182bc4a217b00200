"""How much each hyperparameter matters, as bars with their uncertainty."""

from collections.abc import Sequence
from typing import NamedTuple

from telemetry.core.figures.colours import Figure
from telemetry.core.wording import plotly_text


class Importance(NamedTuple):
    """A hyperparameter's share of what all of them explain, and the spread of that share."""

    name: str
    share: float
    spread: float


def importance_bars(importances: Sequence[Importance]) -> Figure:
    """Return a horizontal bar per hyperparameter, the most important one on top."""
    ordered = sorted(importances, key=lambda i: i.share)
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [i.share for i in ordered],
        "y": [plotly_text(i.name, 28) for i in ordered],
        "text": [f"{plotly_text(i.name)}<br>{100 * i.share:.1f} % ± {100 * i.spread:.1f}" for i in ordered],
        "textposition": "none",
        "hoverinfo": "text",
        "error_x": {
            "type": "data",
            "array": [i.spread for i in ordered],
            "color": "$text",
            "thickness": 1.2,
            "width": 4,
        },
        "marker": {"color": "$c1"},
    }
    layout = {
        "xaxis": {
            "tickformat": ".0%",
            "rangemode": "tozero",
            "title": {"text": "share of the explained difference"},
        },
        "yaxis": {"automargin": True, "type": "category"},
        "showlegend": False,
        "bargap": 0.4,
    }
    return {"data": [bars], "layout": layout, "note": ""}
