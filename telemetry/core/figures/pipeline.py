"""One iteration of a pipeline: what every rank computed, and where and why it waited."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from telemetry.core.figures.colours import Figure
from telemetry.core.wording import duration_text, plotly_text

# kind -> (name in the legend, colour, pattern): told apart without colour too
KINDS = {
    "F": ("forward", "$c1", ""),
    "B": ("backward", "$c2", "/"),
    "W": ("weight gradient", "$c5", "."),
    "guest": ("trials of studies, in the bubble", "$c3", ""),
    "fill": ("bubble: waits for its first micro-batch", "$faint", "-"),
    "stall": ("bubble: waits between two", "$faint", "x"),
    "drain": ("bubble: is done and waits for the others", "$faint", "|"),
}
MOST_LANES = 64


class Piece(NamedTuple):
    """Something that a rank did, in seconds since the iteration's start."""

    kind: str
    start_s: float
    end_s: float
    label: str


class Track(NamedTuple):
    """A rank (or a stage) and its pieces in order of time."""

    label: str
    pieces: Sequence[Piece]


def measured_track(label: str, row: Mapping[str, Any]) -> Track:
    """Return a rank's iteration from what it measured.

    `chunks` are {type, microbatch, seconds} in order, `bubbles` {slot, seconds}: a wait before the chunk of
    that index, or after the last one. Time counts from the rank's first instruction.
    """
    chunks = row.get("chunks", [])
    waits: dict[int, float] = {}
    for bubble in row.get("bubbles", []):
        slot = min(int(bubble["slot"]), len(chunks))
        waits[slot] = waits.get(slot, 0.0) + float(bubble["seconds"])
    pieces: list[Piece] = []
    clock = 0.0
    for index in range(len(chunks) + 1):
        if index in waits:
            kind = "fill" if index == 0 else "drain" if index == len(chunks) else "stall"
            pieces.append(Piece(kind, clock, clock + waits[index], KINDS[kind][0]))
            clock += waits[index]
        if index < len(chunks):
            chunk, kind = chunks[index], str(chunks[index]["type"])
            end = clock + float(chunk["seconds"])
            pieces.append(Piece(kind, clock, end, chunk_name(kind, chunk["microbatch"])))
            clock = end
    return Track(label, pieces)


def pipeline_timeline(tracks: Sequence[Track]) -> Figure:
    """Return a bar per piece and track, bubbles named; of very many tracks the first ones are drawn."""
    drawn = list(tracks[:MOST_LANES])
    end = max((piece.end_s for track in drawn for piece in track.pieces), default=0.0)
    labels = [plotly_text(track.label, 32) for track in drawn]
    data = [_bars(kind, drawn, labels) for kind in KINDS]
    axis = {"type": "category", "automargin": True, "categoryorder": "array", "categoryarray": labels[::-1]}
    layout: dict[str, Any] = {
        "barmode": "overlay",
        "bargap": 0.3,
        "xaxis": {"title": {"text": "seconds of one iteration"}, "range": [0, end or 1]},
        "yaxis": axis,
        "showlegend": True,
        "hovermode": "closest",
    }
    note = f"{len(drawn)} of {len(tracks)} ranks drawn. " if len(drawn) < len(tracks) else ""
    return {
        "data": [trace for trace in data if trace["x"]],
        "layout": layout,
        "note": note + idle_words(drawn),
        "height": 110 + 30 * len(drawn),
    }


def idle_words(tracks: Sequence[Track]) -> str:
    """Return how much of the ranks' time is spent waiting."""
    total = sum(piece.end_s - piece.start_s for track in tracks for piece in track.pieces)
    idle = sum(
        piece.end_s - piece.start_s
        for track in tracks
        for piece in track.pieces
        if piece.kind in {"fill", "stall", "drain"}
    )
    return f"{idle / total:.0%} of the ranks' time are bubbles." if total > 0 else ""


def chunk_name(kind: str, microbatch: int) -> str:
    """Return a chunk in words."""
    return f"{KINDS.get(kind, (kind,))[0]} of micro-batch {microbatch}"


def _bars(kind: str, tracks: Sequence[Track], labels: Sequence[str]) -> dict[str, Any]:
    name, colour, pattern = KINDS[kind]
    rows = [
        (label, piece)
        for label, track in zip(labels, tracks, strict=True)
        for piece in track.pieces
        if piece.kind == kind
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "base": [piece.start_s for _, piece in rows],
        "x": [piece.end_s - piece.start_s for _, piece in rows],
        "y": [label for label, _ in rows],
        "text": [
            f"{label}: {plotly_text(piece.label)}<br>{duration_text(piece.end_s - piece.start_s)}"
            for label, piece in rows
        ],
        "textposition": "none",
        "hoverinfo": "text",
        "marker": {
            "color": colour,
            "line": {"width": 0.6, "color": "$surface"},
            "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "$surface", "solidity": 0.3},
        },
    }
