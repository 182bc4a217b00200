"""How often what broke, over time."""

from collections.abc import Mapping, Sequence
from typing import Any

from telemetry.core.figures.colours import SERIES, Figure
from telemetry.core.wording import plotly_text

PATTERNS = ("", "/", ".", "x", "-", "|", "+")


def failure_counts(times: Sequence[str], counts: Mapping[str, Sequence[int]], unit: str) -> Figure:
    """Return bars stacked by kind; `times` are the starts of the intervals (ISO), `unit` their length."""
    data = [
        {
            "type": "bar",
            "name": plotly_text(kind, 40),
            "x": list(times),
            "y": list(values),
            "text": [f"{plotly_text(kind, 40)}: {n} in the {unit} from {t[:16].replace('T', ' ')} UTC"
                     for n, t in zip(values, times, strict=True)],
            "textposition": "none",
            "hoverinfo": "text",
            "marker": {
                "color": SERIES[i % len(SERIES)],
                "pattern": {"shape": PATTERNS[i % len(PATTERNS)], "fillmode": "overlay",
                            "fgcolor": "$surface", "solidity": 0.25},
            },
        }
        for i, (kind, values) in enumerate(counts.items())
    ]  # fmt: skip
    layout: dict[str, Any] = {
        "barmode": "stack",
        "bargap": 0.15,
        "xaxis": {"type": "date", "title": {"text": f"time (UTC), by {unit}"}},
        "yaxis": {"title": {"text": "failures"}, "rangemode": "tozero", "tickformat": "d"},
        "showlegend": True,
    }
    return {"data": data, "layout": layout, "note": ""}
