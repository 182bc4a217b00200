"""Charts of what carries over from narrow models to wide ones."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from telemetry.core.figures.colours import Figure
from telemetry.core.wording import number_text, plotly_text


class Layer(NamedTuple):
    """A layer's change over widths: `scalings` is target width over width, `change` how far it moved."""

    name: str
    scalings: Sequence[float]
    change: Sequence[float | None]
    slope: float | None
    passed: bool


class Pair(NamedTuple):
    """A trial's metric at two widths."""

    trial: int
    narrow: float
    wide: float


def width_lines(layers: Sequence[Layer]) -> Figure:
    """Return the coordinate check: how far each activation moves in training, over width; flat is right."""
    scalings = sorted({scaling for layer in layers for scaling in layer.scalings}, reverse=True)
    return {
        "data": [_layer(layer) for layer in sorted(layers, key=lambda one: not one.passed)],
        "layout": {
            "xaxis": {
                "type": "log",
                "title": {"text": "width"},
                "tickvals": [1 / scaling for scaling in scalings],
                "ticktext": ["target" if scaling == 1 else f"1/{scaling:g}" for scaling in scalings],
            },
            "yaxis": {"type": "log", "dtick": 1, "title": {"text": "change of the activation"}},
            "showlegend": any(not layer.passed for layer in layers),
        },
        "note": "",
    }


def _layer(layer: Layer) -> dict[str, Any]:
    name = plotly_text(layer.name, 40)
    points = [
        (1 / scaling, value) for scaling, value in zip(layer.scalings, layer.change, strict=True) if value
    ]
    points.sort()
    slope = "diverges" if layer.slope is None else f"grows like width to the power {layer.slope:+.2f}"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "text": [f"{name}<br>{slope}"] * len(points),
        "hoverinfo": "text",
        "showlegend": not layer.passed,
        "line": {"width": 1.3 if layer.passed else 2.6, "color": "$c1" if layer.passed else "$c2"},
        "marker": {"size": 4 if layer.passed else 7, "symbol": "circle" if layer.passed else "x"},
        "opacity": 0.65 if layer.passed else 1.0,
    }


def agreement(pairs: Sequence[Pair], *, metric: str, narrow: str, wide: str) -> Figure:
    """Return a point per trial, its metric at one width over the other; ranks agree where points climb.

    The best by the narrow model and the best by the wide one are marked where they are not the same.
    """
    name = plotly_text(metric)
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "markers+text" if len(pairs) <= 12 else "markers",
                "name": "trials",
                "x": [pair.narrow for pair in pairs],
                "y": [pair.wide for pair in pairs],
                "text": [f"#{pair.trial}" for pair in pairs],
                "textposition": "top center",
                "textfont": {"size": 10},
                "hovertext": [
                    f"trial {pair.trial}<br>{name} {number_text(pair.narrow)} {narrow}, "
                    f"{number_text(pair.wide)} {wide}"
                    for pair in pairs
                ],
                "hoverinfo": "text",
                "customdata": [pair.trial for pair in pairs],
                "cliponaxis": False,
                "marker": {"size": 9, "color": "$c2", "symbol": "diamond"},
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": f"{name} {narrow}"}},
            "yaxis": {"title": {"text": f"{name} {wide}"}},
            "showlegend": False,
        },
        "note": "",
    }
