"""The best metric so far over time, with every trial as a point and the target models as stars."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from telemetry.core.figures.colours import Figure
from telemetry.core.figures.scales import thin, value_scale
from telemetry.core.wording import number_text, plotly_text

MOST_POINTS = 2000


class Attempt(NamedTuple):
    """A finished trial: its number, when it ended in seconds since the start, and its metric."""

    number: int
    ended_s: float
    metric: float


class TargetMark(NamedTuple):
    """A target model: the trial it came from, when its training began and ended, and its metric."""

    trial: int
    start_s: float
    end_s: float | None
    metric: float | None


def best_so_far(
    attempts: Sequence[Attempt],
    *,
    metric: str,
    mode: str,
    by: str = "time",
    targets: Sequence[TargetMark] = (),
) -> Figure:
    """Return the chart; `by` is `time` or `number`. Metrics that are not finite are never best, nor drawn."""
    position = (lambda a: a.ended_s) if by == "time" else (lambda a: float(a.number))
    finite = sorted((a for a in attempts if math.isfinite(a.metric)), key=position)
    records = improvements([a.metric for a in finite], mode)
    shown = thin(len(finite), MOST_POINTS, records)
    name = plotly_text(metric)
    marks = [t for t in targets if t.metric is not None and t.end_s is not None and by == "time"]
    scale = value_scale([a.metric for a in finite] + [t.metric or 0.0 for t in marks], mode=mode, title=name)
    end = max([position(finite[-1]) if finite else 0.0] + [t.end_s or 0.0 for t in marks])
    data = [
        _points([finite[i] for i in shown], position, name),
        _steps([finite[i] for i in records], position, end, name),
    ]
    if marks:
        data.append(_stars(marks, name))
    title = "seconds since the start" if by == "time" else "trial"
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": title}, "rangemode": "tozero"},
        "yaxis": scale.axis,
        "showlegend": True,
        "shapes": [_phase(t, end) for t in targets] if by == "time" else [],
    }
    return {
        "data": data,
        "layout": layout,
        "note": _note(len(shown), len(finite), scale.outside, bool(targets)),
    }


def improvements(metrics: Sequence[float], mode: str) -> list[int]:
    """Return the positions at which the best value so far changed."""
    sign = 1.0 if mode == "max" else -1.0
    best, found = -math.inf, []
    for index, value in enumerate(metrics):
        if sign * value > best:
            best = sign * value
            found.append(index)
    return found


def _points(attempts: Sequence[Attempt], position: Any, name: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "trials",
        "x": [position(a) for a in attempts],
        "y": [a.metric for a in attempts],
        "text": [f"trial {a.number}<br>{name} {number_text(a.metric)}" for a in attempts],
        "customdata": [a.number for a in attempts],
        "hoverinfo": "text",
        "marker": {"size": 5, "color": "$faint"},
    }


def _steps(best: Sequence[Attempt], position: Any, end: float, name: str) -> dict[str, Any]:
    xs, ys = [position(a) for a in best], [a.metric for a in best]
    texts = [f"best since trial {a.number}<br>{name} {number_text(a.metric)}" for a in best]
    if best and end > xs[-1]:
        xs, ys, texts = [*xs, end], [*ys, ys[-1]], [*texts, texts[-1]]
    line = {"shape": "hv", "width": 2.2, "color": "$c1"}
    return {"type": "scatter", "mode": "lines", "name": "best so far", "x": xs, "y": ys, "text": texts,
            "hoverinfo": "text", "line": line}  # fmt: skip


def _stars(marks: Sequence[TargetMark], name: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "target models",
        "x": [t.end_s for t in marks],
        "y": [t.metric for t in marks],
        "text": [f"target of trial {t.trial}<br>{name} {number_text(t.metric)}" for t in marks],
        "hoverinfo": "text",
        "marker": {"size": 12, "symbol": "star", "color": "$c2"},
    }


def _phase(target: TargetMark, end: float) -> dict[str, Any]:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": target.start_s,
        "x1": target.end_s if target.end_s is not None else max(end, target.start_s),
        "y0": 0,
        "y1": 1,
        "line": {"width": 0},
        "fillcolor": "$c2",
        "opacity": 0.07,
        "layer": "below",
    }


def _note(shown: int, total: int, outside: int, targets: bool) -> str:
    parts = []
    if shown < total:
        parts.append(f"{shown} of {total} trials drawn, every improvement among them.")
    if outside:
        parts.append(f"{outside} diverged {'trial lies' if outside == 1 else 'trials lie'} outside the axis.")
    if targets:
        parts.append("Shaded: training of the target models.")
    return " ".join(parts)
