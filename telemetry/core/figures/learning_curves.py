"""Metric per epoch: the best trials in front of the others, chosen ones in colours of their own."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from telemetry.core.figures.colours import SERIES, Figure
from telemetry.core.figures.scales import value_scale
from telemetry.core.wording import number_text, plotly_text


class Curve(NamedTuple):
    """A trial's metric after each epoch (None where it was not finite), and whether a person chose it."""

    label: str
    points: Sequence[tuple[int, float | None]]
    is_chosen: bool = False
    is_best: bool = False


def learning_curves(curves: Sequence[Curve], *, metric: str, mode: str) -> Figure:
    """Return the chart: gaps where a value was not finite, the best and the chosen curves drawn last."""
    ordered = sorted(curves, key=lambda c: (c.is_chosen, c.is_best))
    values = [v for c in curves for _, v in c.points if v is not None and math.isfinite(v)]
    scale = value_scale(values, mode=mode, title=plotly_text(metric))
    chosen = [c for c in ordered if c.is_chosen]
    data = [_line(c, plotly_text(metric), _colour(c, chosen)) for c in ordered]
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": "epoch"}, "rangemode": "tozero"},
        "yaxis": scale.axis,
        "showlegend": bool(chosen) or any(c.is_best for c in curves),
    }
    return {"data": data, "layout": layout, "note": ""}


def _colour(curve: Curve, chosen: Sequence[Curve]) -> str:
    if curve.is_chosen:
        return SERIES[1:][chosen.index(curve) % (len(SERIES) - 1)]
    return "$c1" if curve.is_best else "$faint"


def _line(curve: Curve, metric: str, colour: str) -> dict[str, Any]:
    label = plotly_text(curve.label)
    stands_out = curve.is_chosen or curve.is_best
    ys = [v if v is not None and math.isfinite(v) else None for _, v in curve.points]
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(curve.points) < 3 else "lines",
        "name": label,
        "x": [epoch for epoch, _ in curve.points],
        "y": ys,
        "text": [f"{label}, epoch {epoch}<br>{metric} {number_text(v)}" for epoch, v in curve.points],
        "hoverinfo": "text",
        "connectgaps": False,
        "showlegend": stands_out,
        "line": {"width": 2.4 if stands_out else 1.1, "color": colour},
        "marker": {"size": 5, "color": colour},
    }
