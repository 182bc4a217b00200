"""The rung ladder: every trial's metric at every rung, and whether it went on from there."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from telemetry.core.figures.colours import Figure
from telemetry.core.figures.scales import thin, value_scale
from telemetry.core.wording import number_text, plotly_text

MOST_MARKS = 3000
# fate -> (name in the legend, colour, symbol): told apart without colour too
FATES = {
    "stopped": ("stopped here", "$c2", "x-thin-open"),
    "went on": ("went on", "$c3", "circle"),
    "waiting": ("waiting for a verdict", "$c6", "circle-open"),
    "ended": ("failed or cut here", "$faint", "square-open"),
}
_SPREAD = 0.28  # of the distance between two rungs, so that equal metrics do not hide each other


class Mark(NamedTuple):
    """A trial at a rung: its number, the rung's epoch, its metric there, its fate, and why."""

    trial: int
    rung: int
    metric: float
    fate: str
    reason: str = ""


def rung_ladder(marks: Sequence[Mark], *, rungs: Sequence[int], metric: str, mode: str) -> Figure:
    """Return the chart: one column per rung; the trials in it from left to right in order of their number."""
    finite = [mark for mark in marks if math.isfinite(mark.metric) and mark.rung in rungs]
    survivors = [index for index, mark in enumerate(finite) if mark.fate == "went on"]
    drawn = [finite[i] for i in thin(len(finite), MOST_MARKS, survivors[: MOST_MARKS // 2])]
    name = plotly_text(metric)
    scale = value_scale([mark.metric for mark in finite], mode=mode, title=name)
    last = max((mark.trial for mark in drawn), default=0) or 1
    layout: dict[str, Any] = {
        "xaxis": {
            "title": {"text": "rung"},
            "tickvals": list(range(len(rungs))),
            "ticktext": [f"epoch {rung}" for rung in rungs],
            "range": [-0.5, len(rungs) - 0.5],
        },
        "yaxis": scale.axis,
        "showlegend": True,
    }
    data = [_trace(fate, [m for m in drawn if m.fate == fate], list(rungs), last, name) for fate in FATES]
    parts = [f"{len(drawn)} of {len(finite)} marks drawn."] if len(drawn) < len(finite) else []
    if scale.outside:
        parts.append(f"{scale.outside} outside the axis.")
    return {"data": [trace for trace in data if trace["x"]], "layout": layout, "note": " ".join(parts)}


def _trace(fate: str, marks: Sequence[Mark], rungs: list[int], last: int, name: str) -> dict[str, Any]:
    label, colour, symbol = FATES[fate]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label,
        "x": [rungs.index(mark.rung) + _SPREAD * (2 * mark.trial / last - 1) for mark in marks],
        "y": [mark.metric for mark in marks],
        "text": [
            f"trial {mark.trial} at epoch {mark.rung}: {label}<br>{name} {number_text(mark.metric)}"
            + (f"<br>{plotly_text(mark.reason, 90)}" if mark.reason else "")
            for mark in marks
        ],
        "customdata": [mark.trial for mark in marks],
        "hoverinfo": "text",
        "marker": {"size": 7, "symbol": symbol, "color": colour, "line": {"width": 1.6, "color": colour}},
    }
