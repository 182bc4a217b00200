"""Where device time went: the study's whole, and each trial's share of the containers it was in."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from telemetry.core.figures.colours import SERIES, Figure
from telemetry.core.figures.scales import thin
from telemetry.core.wording import duration_text, plotly_text

MOST_SHARES = 2500
# part -> (name, colour, pattern)
PARTS = {
    "search": ("training of trials", "$c1", ""),
    "target": ("training of targets", "$c2", "/"),
    "profiling": ("profiling", "$c5", "x"),
    "repacking": ("repacking", "$c4", "."),
    "compiling": ("compiling", "$c6", "-"),
    "check": ("transfer check", "$c3", "+"),
    "idle": ("idle", "$faint", ""),
}


class Share(NamedTuple):
    """A trial's part of a container: device seconds for one epoch, among `size` trials of a batch size."""

    trial: int
    container: str
    size: int
    batch_size: int
    seconds_per_epoch: float


def spending_bar(seconds: Mapping[str, float]) -> Figure:
    """Return one bar of device seconds, cut into what they were spent on."""
    total = sum(seconds.values()) or 1.0
    data = []
    for part, (name, colour, pattern) in PARTS.items():
        spent = seconds.get(part, 0.0)
        if spent <= 0:
            continue
        share = f"{spent / total:.1%}"
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": f"{name} {share}",
                "x": [spent],
                "y": ["device time"],
                "text": [f"{name}: {duration_text(spent)}, {share}"],
                "textposition": "none",
                "hoverinfo": "text",
                "marker": {
                    "color": colour,
                    "line": {"width": 0.6, "color": "$surface"},
                    "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "$surface"},
                },
            }
        )
    layout: dict[str, Any] = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "device seconds"}, "range": [0, total]},
        "yaxis": {"type": "category", "showticklabels": False},
        "showlegend": True,
    }
    return {"data": data, "layout": layout, "note": ""}


def share_points(shares: Sequence[Share], alone: Mapping[int, float]) -> Figure:
    """Return each trial's device seconds per epoch over the size of its container, a colour per batch size.

    `alone` is what an epoch of one trial by itself was measured to cost, by batch size: a dotted line.
    """
    sizes = sorted({share.batch_size for share in shares})
    largest = max((share.size for share in shares), default=1)
    data: list[dict[str, Any]] = []
    for index, batch_size in enumerate(sizes):
        colour = SERIES[index % len(SERIES)]
        own = [share for share in shares if share.batch_size == batch_size]
        data.append(_points([own[i] for i in thin(len(own), MOST_SHARES // len(sizes))], colour))
        if batch_size in alone:
            data.append(_alone(batch_size, alone[batch_size], largest, colour))
    layout = {
        "xaxis": {"title": {"text": "trials in the container"}, "type": "log", "dtick": 0.30103},
        "yaxis": {"title": {"text": "device seconds per epoch of a trial"}, "rangemode": "tozero"},
        "showlegend": True,
    }
    return {"data": data, "layout": layout, "note": ""}


def _points(shares: Sequence[Share], colour: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"batch {shares[0].batch_size}",
        "x": [share.size for share in shares],
        "y": [share.seconds_per_epoch for share in shares],
        "text": [
            f"trial {share.trial} in {plotly_text(share.container)}, {share.size} trials<br>"
            f"{share.seconds_per_epoch:.3g} device seconds per epoch"
            for share in shares
        ],
        "customdata": [share.trial for share in shares],
        "hoverinfo": "text",
        "marker": {"size": 6, "color": colour, "opacity": 0.7},
    }


def _alone(batch_size: int, seconds: float, largest: int, colour: str) -> dict[str, Any]:
    text = f"alone, batch {batch_size}: {seconds:.3g} s per epoch (measured by the probe)"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"alone, batch {batch_size}",
        "x": [1, max(largest, 2)],
        "y": [seconds, seconds],
        "text": [text, text],
        "hoverinfo": "text",
        "line": {"width": 1.4, "dash": "dot", "color": colour},
    }
