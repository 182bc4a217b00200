"""The makespan: what ran on which device, from the first trial to the last target model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from telemetry.core.figures.colours import Figure
from telemetry.core.wording import duration_text, plotly_text

# kind -> (name in the legend, colour, pattern): told apart without colour too
KINDS = {
    "trial": ("trials", "$c1", ""),
    "fused": ("fused trials", "$c6", "."),
    "failed": ("failed", "$c4", "x"),
    "target": ("target models", "$c2", "/"),
    "profile": ("profiling", "$c5", "x"),
    "check": ("transfer check", "$c3", "+"),
}
APART = ("target", "profile", "check")  # kinds that share no bar with their neighbours
MOST_SPANS = 800
MOST_LINKS = 400


class Span(NamedTuple):
    """Something that ran from `start_s` to `end_s`; it may stand for several, some of them failed."""

    start_s: float
    end_s: float
    kind: str
    label: str
    size: int = 1
    failed: int = 0


class Lane(NamedTuple):
    """A device and what ran on it, in order of time."""

    label: str
    spans: Sequence[Span]


class Link(NamedTuple):
    """Trials that went from one container to another: `kind` is `split`, `merge` or `moved`."""

    from_lane: str
    from_s: float
    to_lane: str
    to_s: float
    kind: str
    label: str


def timeline(lanes: Sequence[Lane], links: Sequence[Link] = ()) -> Figure:
    """Return a bar per span and lane. Where there are too many, neighbours of one kind share a bar.

    A line leads from a container to the one in which its trials went on, as long as there are few.
    """
    total = sum(len(lane.spans) for lane in lanes)
    end = max((s.end_s for lane in lanes for s in lane.spans), default=0.0)
    drawn = list(lanes)
    if total > MOST_SPANS:
        slots = max(MOST_SPANS // max(len(lanes), 1), 1)
        drawn = [Lane(lane.label, merged(lane.spans, end / slots)) for lane in lanes]
    labels = [plotly_text(lane.label, 32) for lane in drawn]
    data = [_bars(kind, drawn, labels) for kind in KINDS]
    data += [_links(kind, links if len(links) <= MOST_LINKS else ()) for kind in LINKS]
    axis = {"type": "category", "automargin": True, "categoryorder": "array", "categoryarray": labels[::-1]}
    layout: dict[str, Any] = {
        "barmode": "overlay",
        "bargap": 0.35,
        "xaxis": {"title": {"text": "seconds since the start"}, "range": [0, end or 1]},
        "yaxis": axis,
        "showlegend": True,
        "hovermode": "closest",
    }
    shown = sum(len(lane.spans) for lane in drawn)
    note = (
        f"{total} intervals drawn as {shown} bars: neighbours share one, failed ones among them."
        if shown < total
        else ""
    )
    return {"data": [trace for trace in data if trace["x"]], "layout": layout, "note": note}


def merged(spans: Sequence[Span], gap_s: float) -> list[Span]:
    """Return the spans, neighbours joined into bars shorter than `gap_s`.

    Failed ones join the trials around them and are counted in the label; target models stay apart.
    """
    out: list[Span] = []
    for span in sorted(spans, key=lambda s: s.start_s):
        failed = span.failed or int(span.kind == "failed")
        kind = "trial" if span.kind == "failed" else span.kind
        last = out[-1] if out else None
        if last and _joins(last, span, kind, gap_s):
            count, failed = last.size + span.size, last.failed + failed
            label = f"{count} containers" + (f", {failed} failed" if failed else "")
            out[-1] = Span(last.start_s, max(last.end_s, span.end_s), kind, label, count, failed)
        else:
            out.append(Span(span.start_s, span.end_s, kind, span.label, span.size, failed))
    return out


def _joins(last: Span, span: Span, kind: str, gap_s: float) -> bool:
    # A bar grows to one gap at most, so that the chart keeps its rhythm.
    return kind not in APART and last.kind == kind and max(last.end_s, span.end_s) - last.start_s < gap_s


# kind -> (name in the legend, colour, dash)
LINKS = {
    "split": ("split", "$c2", "dot"),
    "merge": ("merged", "$c3", "solid"),
    "moved": ("repacked", "$text", "dash"),
}


def _links(kind: str, links: Sequence[Link]) -> dict[str, Any]:
    name, colour, dash = LINKS[kind]
    chosen = [link for link in links if link.kind == kind]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [],
        "y": [],
        "text": [],
        "hoverinfo": "text",
        "connectgaps": False,
        "line": {"width": 1.8, "color": colour, "dash": dash},
        "marker": {"size": 6, "symbol": "circle", "color": colour, "line": {"width": 1, "color": "$surface"}},
    }
    for link in chosen:
        text = plotly_text(link.label, 120)
        trace["x"] += [link.from_s, link.to_s, None]
        trace["y"] += [plotly_text(link.from_lane, 32), plotly_text(link.to_lane, 32), None]
        trace["text"] += [text, text, ""]
    return trace


def _bars(kind: str, lanes: Sequence[Lane], labels: Sequence[str]) -> dict[str, Any]:
    name, colour, pattern = KINDS[kind]
    rows = [
        (label, s) for label, lane in zip(labels, lanes, strict=True) for s in lane.spans if s.kind == kind
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": [s.start_s for _, s in rows],
        "x": [s.end_s - s.start_s for _, s in rows],
        "y": [label for label, _ in rows],
        "text": [
            f"{plotly_text(s.label)}<br>{label}, {s.start_s:.1f} to {s.end_s:.1f} s "
            f"({duration_text(s.end_s - s.start_s)})"
            for label, s in rows
        ],
        "textposition": "none",
        "hoverinfo": "text",
        "marker": {
            "color": colour,
            "line": {"width": 0.6, "color": "$surface"},
            "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "$surface", "solidity": 0.25},
        },
    }
