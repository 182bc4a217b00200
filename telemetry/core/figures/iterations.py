"""A training job over its steps: how long iterations take against what is expected, and the loss."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from telemetry.core.figures.colours import Figure
from telemetry.core.figures.scales import thin, value_scale
from telemetry.core.wording import duration_text, number_text

MOST_POINTS = 1500


class Step(NamedTuple):
    """One committed step: seconds measured and expected on healthy devices, loss, number of its layout."""

    step: int
    seconds: float
    expected_s: float | None
    loss: float | None
    epoch: int


class Mark(NamedTuple):
    """Something that happened at a step."""

    step: int
    label: str
    kind: str  # incident | change


def iteration_times(steps: Sequence[Step], marks: Sequence[Mark] = ()) -> Figure:
    """Return measured iteration times as points, expected ones as a line, incidents and changes as marks."""
    shown = [steps[i] for i in thin(len(steps), MOST_POINTS, _edges(steps))]
    scale = value_scale(
        [s.seconds for s in shown] + [s.expected_s for s in shown if s.expected_s is not None],
        mode="min",
        title="seconds per iteration",
    )
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "measured",
            "x": [s.step for s in shown],
            "y": [s.seconds for s in shown],
            "text": [f"step {s.step}<br>measured {duration_text(s.seconds)}" for s in shown],
            "hoverinfo": "text",
            "line": {"width": 1.2, "color": "$c1"},
            "marker": {"size": 3.5, "color": "$c1"},
        }
    ]
    if any(s.expected_s is not None for s in shown):
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "expected on healthy devices (estimated)",
                "x": [s.step for s in shown],
                "y": [s.expected_s for s in shown],
                "text": [f"step {s.step}<br>expected {duration_text(s.expected_s)}" for s in shown],
                "hoverinfo": "text",
                "line": {"width": 1.8, "color": "$c2", "dash": "dash", "shape": "hv"},
            }
        )
    layout = {"xaxis": _steps_axis(), "yaxis": scale.axis, "showlegend": True, **_marks(marks)}
    return {"data": data, "layout": layout, "note": _note(len(shown), len(steps), scale.outside)}


def loss_curve(steps: Sequence[Step]) -> Figure:
    """Return the loss over the steps; steps whose loss is not finite are left out and counted."""
    finite = [s for s in steps if s.loss is not None and math.isfinite(s.loss)]
    shown = [finite[i] for i in thin(len(finite), MOST_POINTS)]
    scale = value_scale([s.loss or 0.0 for s in shown], mode="min", title="loss")
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "loss",
            "x": [s.step for s in shown],
            "y": [s.loss for s in shown],
            "text": [f"step {s.step}<br>loss {number_text(s.loss)}" for s in shown],
            "hoverinfo": "text",
            "line": {"width": 1.8, "color": "$c3"},
        }
    ]
    left = sum(s.loss is not None and not math.isfinite(s.loss) for s in steps)
    note = f"{left} step{'' if left == 1 else 's'} had a loss that is not finite." if left else ""
    return {
        "data": data,
        "layout": {"xaxis": _steps_axis(), "yaxis": scale.axis, "showlegend": False},
        "note": note,
    }


def _steps_axis() -> dict[str, Any]:
    return {"title": {"text": "optimizer step"}}


def _edges(steps: Sequence[Step]) -> list[int]:
    """The first step of every layout, which thinning must not lose."""
    return [i for i in range(1, len(steps)) if steps[i].epoch != steps[i - 1].epoch]


def _marks(marks: Sequence[Mark]) -> dict[str, Any]:
    shapes, notes = [], []
    for mark in marks:
        colour = "$c4" if mark.kind == "incident" else "$c3"
        line = {"width": 1.2, "color": colour, "dash": "dot" if mark.kind == "incident" else "solid"}
        shapes.append(
            {"type": "line", "xref": "x", "yref": "paper", "x0": mark.step, "x1": mark.step, "y0": 0, "y1": 1,
             "line": line}
        )  # fmt: skip
        notes.append(
            {"x": mark.step, "y": 1, "xref": "x", "yref": "paper", "text": mark.label, "showarrow": False,
             "xanchor": "left", "yanchor": "top", "font": {"size": 10.5, "color": colour}, "textangle": 90}
        )  # fmt: skip
    return {"shapes": shapes, "annotations": notes}


def _note(shown: int, total: int, outside: int) -> str:
    parts = []
    if shown < total:
        parts.append(f"{shown} of {total} iterations drawn.")
    if outside:
        parts.append(f"{outside} lie outside the axis.")
    return " ".join(parts)
