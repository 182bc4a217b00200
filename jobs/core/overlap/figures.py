"""Charts of a plan as plain Plotly figures; colours are names of the page's palette."""

from typing import Any

from jobs.core.overlap.graph import Graph, Kind, Steps, given_order
from jobs.core.overlap.memory import memory_profile
from jobs.core.overlap.questions import Answer
from jobs.core.overlap.simulator import Timeline

Interval = tuple[float, float]
Figure = dict[str, Any]

_MOST_BARS = 900
_MS = 1e3
_MIB = 1 << 20
_LANE_HEIGHT = 46


def streams_figure(graph: Graph, steps: Steps, timeline: Timeline, span_s: float) -> Figure:
    """One lane for compute, one for each group; bubbles and exposed communication in their own colour.

    Args:
        span_s: length of the time axis, so that before and after are drawn to one scale.
    """
    critical = critical_path(graph, steps, timeline)
    lanes = ["compute", *graph.groups]
    busy = _merged(
        [(timeline.starts_s[s[0]], timeline.ends_s[s[0]]) for s in steps if _is(graph, s, Kind.COMPUTE)]
    )
    data: list[dict[str, Any]] = []
    for tile in sorted({node.tile for node in graph.nodes}, key=lambda t: -1 if t is None else t):
        name = "shared" if tile is None else f"tile {tile}"
        bars = _bars(graph, steps, timeline, tile)
        if bars:
            colour = "$c7" if tile is None else f"$c{1 + tile % 6}"
            data.append(_trace(name, bars, colour, span_s, width=0.62))
    exposed = [
        (group, start, end, f"exposed communication, {group}")
        for group in graph.groups
        for start, end in _without(_comm(graph, steps, timeline, group), busy)
    ]
    gaps = [("compute", start, end, "bubble") for start, end in _without([(0.0, timeline.makespan_s)], busy)]
    data.append(_trace("bubble", gaps, "$bad", span_s, width=0.2))
    data.append(_trace("exposed communication", exposed, "$warning", span_s, width=0.2, shift=0.42))
    path = [
        (
            "compute" if graph.group_of[i] < 0 else graph.groups[graph.group_of[i]],
            start,
            end,
            graph.nodes[i].name,
        )
        for i in critical
        if (end := timeline.ends_s[i]) > (start := timeline.starts_s[i]) and graph.nodes[i].time_s > 0
    ]
    data.append(_trace("critical path", path, "$text", span_s, width=0.08, shift=-0.38))
    layout = {
        "barmode": "overlay",
        "xaxis": {"title": {"text": "ms"}, "range": [0, span_s * _MS * 1.01 or 1]},
        "yaxis": {"categoryorder": "array", "categoryarray": lanes[::-1], "type": "category"},
    }
    note = (
        f"Bubbles {timeline.compute_idle_s * _MS:.3g} ms of {timeline.makespan_s * _MS:.4g} ms;"
        f" exposed communication {timeline.exposed_comm_s * _MS:.3g} ms. Simulated."
    )
    return {"data": data, "layout": layout, "note": note, "height": 110 + _LANE_HEIGHT * len(lanes)}


def memory_figure(answer: Answer) -> Figure:
    """Live bytes along the time of the plan and of the program in one piece, against the budget."""
    data = [
        _curve("untiled", answer.whole, given_order(answer.whole), answer.whole_timeline, "$c7"),
        _curve("plan", answer.plan.graph, answer.plan.chosen.steps, answer.timeline, "$c1"),
    ]
    budget = answer.question.budget_bytes
    if budget is not None:
        end = max(answer.timeline.makespan_s, answer.whole_timeline.makespan_s) * _MS
        line = {"color": "$bad", "dash": "dash", "width": 1.5}
        level = [budget / _MIB] * 2
        data.append(
            {"type": "scatter", "mode": "lines", "name": "budget", "x": [0, end], "y": level, "line": line}
        )
    layout = {"xaxis": {"title": {"text": "ms"}}, "yaxis": {"title": {"text": "MiB"}, "rangemode": "tozero"}}
    peak = answer.plan.chosen.peak_bytes / _MIB
    return {
        "data": data,
        "layout": layout,
        "note": f"Peak of the plan {peak:.4g} MiB, without parameters. Simulated.",
    }


def critical_path(graph: Graph, steps: Steps, timeline: Timeline) -> list[int]:
    """A chain of nodes without a gap from the start to the end of the schedule, in order of time."""
    if not steps:
        return []
    before = _predecessors(graph, steps)
    ends = timeline.ends_s
    at = max(range(len(graph.nodes)), key=lambda index: (ends[index], -index))
    chain = [at]
    while before[at]:
        at = max(before[at], key=lambda index: (ends[index], index))
        chain.append(at)
    return chain[::-1]


def _predecessors(graph: Graph, steps: Steps) -> list[list[int]]:
    """What each node may have waited for: its stream, its collectives, what was issued before."""
    found: list[list[int]] = [[] for _ in graph.nodes]
    compute: int | None = None
    last: dict[int, int] = {}
    for step in steps:
        for member in step:
            first = graph.nodes[member].kind is Kind.COMM
            own = last.get(graph.group_of[member]) if first else None
            waited = list(graph.waits_for[member])
            found[member] = [index for index in (compute, own, *waited) if index is not None]
        if graph.nodes[step[0]].kind is Kind.COMM:
            last[graph.group_of[step[0]]] = step[0]
        else:
            compute = step[0]
    return found


def _is(graph: Graph, step: tuple[int, ...], kind: Kind) -> bool:
    return graph.nodes[step[0]].kind is kind


def _comm(graph: Graph, steps: Steps, timeline: Timeline, group: str) -> list[Interval]:
    return _merged(
        [
            (timeline.starts_s[step[0]], timeline.ends_s[step[0]])
            for step in steps
            if graph.nodes[step[0]].group == group
        ]
    )


def _bars(
    graph: Graph, steps: Steps, timeline: Timeline, tile: int | None
) -> list[tuple[str, float, float, str]]:
    """A tile's work; neighbours are drawn as one bar where there would be too many."""
    shortest = timeline.makespan_s / _MOST_BARS
    found: list[tuple[str, float, float, str]] = []
    open_: dict[str, int] = {}
    for step in steps:
        node = graph.nodes[step[0]]
        if node.tile != tile or node.kind not in (Kind.COMPUTE, Kind.COMM):
            continue
        start, end = timeline.starts_s[step[0]], timeline.ends_s[step[0]]
        if end <= start:
            continue
        lane = node.group or "compute"
        previous = open_.get(lane)
        if (
            previous is not None
            and start - found[previous][2] <= 1e-12
            and end - found[previous][1] < 2 * shortest
        ):
            name = found[previous][3].split(" …")[0]
            found[previous] = (lane, found[previous][1], end, f"{name} … {node.name}")
            continue
        open_[lane] = len(found)
        found.append((lane, start, end, " + ".join(graph.nodes[member].name for member in step)))
    return found


def _trace(
    name: str,
    bars: list[tuple[str, float, float, str]],
    colour: str,
    span_s: float,
    *,
    width: float,
    shift: float = 0.0,
) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [bar[0] for bar in bars],
        "base": [bar[1] * _MS for bar in bars],
        "x": [(bar[2] - bar[1]) * _MS for bar in bars],
        "text": [bar[3] for bar in bars],
        "textposition": "none",
        "hovertemplate": "%{text}<br>%{x:.4g} ms from %{base:.4g} ms<extra></extra>",
        "marker": {"color": colour},
        "width": width,
    }
    if shift:
        trace["offset"] = shift - width / 2
    return trace


def _curve(name: str, graph: Graph, steps: Steps, timeline: Timeline, colour: str) -> dict[str, Any]:
    profile = memory_profile(graph, steps)
    clock, x = 0.0, []
    for step in steps:
        # A buffer appears when its collective is issued, not when its stream comes to it.
        if graph.nodes[step[0]].kind is not Kind.COMM:
            clock = max(clock, timeline.ends_s[step[0]])
        x.append(clock * _MS)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": [live / _MIB for live in profile.live_bytes],
        "line": {"shape": "hv", "color": colour, "width": 1.5},
        "hovertemplate": "%{y:.4g} MiB<extra>" + name + "</extra>",
    }


def _merged(intervals: list[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if found and start <= found[-1][1] + 1e-12:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _without(intervals: list[Interval], taken: list[Interval]) -> list[Interval]:
    """What is left of the intervals outside of others."""
    found: list[Interval] = []
    for start, end in intervals:
        at = start
        for low, high in taken:
            if high <= at or low >= end:
                continue
            if low > at:
                found.append((at, low))
            at = max(at, high)
        if end > at + 1e-12:
            found.append((at, end))
    return found
