"""What a verdict was made of: own seconds per step of the suspect and of its peers."""

from collections.abc import Mapping, Sequence
from typing import Any

from telemetry.core.figures.colours import Figure
from telemetry.core.wording import duration_text, plotly_text

COLOURS = ("$c7", "$c6", "$c3", "$c5")


def raw_series(
    steps: Sequence[int],
    subject: Sequence[float | None],
    peers: Mapping[str, Sequence[float | None]],
    *,
    name: str,
    unit: str,
    first_step: int | None,
    detected_step: int | None,
) -> Figure:
    """Return the series as lines: the suspect in front, where it began and where it was noticed as marks."""
    data = [
        _line(plotly_text(peer, 40), steps, values, COLOURS[i % len(COLOURS)], 1.1)
        for i, (peer, values) in enumerate(peers.items())
    ]
    data.append(_line(plotly_text(name, 40), steps, subject, "$c2", 2.4))
    shapes, notes = [], []
    for step, label in ((first_step, "first sign"), (detected_step, "verdict")):
        if step is None:
            continue
        shapes.append(
            {"type": "line", "xref": "x", "yref": "paper", "x0": step, "x1": step, "y0": 0, "y1": 1,
             "line": {"width": 1.2, "color": "$c4", "dash": "dot" if label == "first sign" else "solid"}}
        )  # fmt: skip
        notes.append(
            {"x": step, "y": 1, "xref": "x", "yref": "paper", "text": label, "showarrow": False,
             "xanchor": "right" if label == "first sign" else "left", "yanchor": "top",
             "font": {"size": 10.5, "color": "$c4"}}
        )  # fmt: skip
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": "optimizer step"}},
        "yaxis": {"title": {"text": f"own {plotly_text(unit)}"}, "rangemode": "tozero"},
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.14},
        "shapes": shapes,
        "annotations": notes,
    }
    return {"data": data, "layout": layout, "note": ""}


def _line(
    name: str, steps: Sequence[int], values: Sequence[float | None], colour: str, width: float
) -> dict[str, Any]:
    count = min(len(steps), len(values))
    return {
        "type": "scatter",
        "mode": "lines+markers" if count < 80 else "lines",
        "name": name,
        "x": list(steps[:count]),
        "y": list(values[:count]),
        "text": [f"{name}, step {s}<br>{duration_text(v)}" for s, v in zip(steps, values, strict=False)],
        "hoverinfo": "text",
        "connectgaps": False,
        "line": {"width": width, "color": colour},
        "marker": {"size": 4, "color": colour},
    }
