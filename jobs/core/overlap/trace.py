"""A plan as a Chrome trace, which Perfetto's trace processor reads too (JSON trace event format).

Readers count in whole nanoseconds, let slices of a thread only nest or follow each other, and tie an arrow to
the slice that was opened last on its thread. So every time is rounded once, a slice lasts from its rounded
start to its rounded end, and slices without duration do not share a nanosecond with what follows them, except
with compute, which always stands where it runs.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from jobs.core.overlap.graph import Graph, Kind, Steps
from jobs.core.overlap.memory import memory_profile
from jobs.core.overlap.simulator import simulate

_NANOSECONDS = 1e9


def chrome_trace(graph: Graph, steps: Steps, rank: int = 0) -> dict[str, Any]:
    """One process for the rank, one thread for each stream, arrows from collective to wait, live bytes.

    Times are in microseconds, exact to the nanosecond.
    """
    timeline = simulate(graph, steps)
    profile = memory_profile(graph, steps)
    events = [_named("process_name", rank, 0, f"rank {rank}"), _named("thread_name", rank, 0, "compute")]
    events += [_named("thread_name", rank, 1 + i, f"comm {name}") for i, name in enumerate(graph.groups)]
    starts = [round(start * _NANOSECONDS) for start in timeline.starts_s]
    ends = [round(end * _NANOSECONDS) for end in timeline.ends_s]
    shown = _Shown(graph)
    issued = 0
    for position, step in enumerate(steps):
        start, end = starts[step[0]], ends[step[0]]
        node = graph.nodes[step[0]]
        if node.kind is not Kind.VIEW:
            shown.place(step, start, end)
            events.append(_slice(graph, step, rank, *shown.at[step[0]]))
        # The buffer of a collective appears when it is issued, not when its stream comes to it.
        at = issued if node.kind is Kind.COMM else start
        live = {"live": profile.live_bytes[position]}
        events.append({"ph": "C", "name": "bytes", "pid": rank, "ts": _microseconds(at), "args": live})
        if node.kind is not Kind.COMM:
            issued = end
        events += _arrow_ends(graph, step, rank, shown)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


@dataclass
class _Shown:
    """Where slices stand, in nanoseconds: start and end of each node."""

    graph: Graph
    at: dict[int, tuple[int, int]] = field(default_factory=dict)
    instant: dict[int, int] = field(default_factory=dict)

    def place(self, step: tuple[int, ...], start: int, end: int) -> None:
        """Put a step on its thread, behind slices without duration that stand in the same nanosecond."""
        thread = self.graph.group_of[step[0]]
        fixed = self.graph.nodes[step[0]].kind is Kind.COMPUTE and end > start
        if not fixed:
            launched = [self.at[comm][0] for member in step for comm in self.graph.waits_for[member]]
            start = max([start, self.instant.get(thread, -1) + 1, *(launched if end == start else [])])
        end = max(start, end)
        if end == start:
            self.instant[thread] = start
        for member in step:
            self.at[member] = (start, end)


def _microseconds(ns: int) -> float:
    """What is the same number of nanoseconds again for a reader that rounds, and for one that cuts off."""
    value = ns / 1000
    return value if int(value * 1000) >= ns else math.nextafter(value, math.inf)


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(graph: Graph, step: tuple[int, ...], pid: int, start: int, end: int) -> dict[str, Any]:
    members = [graph.nodes[member] for member in step]
    arguments = {"bytes": sum(node.size_bytes for node in members), "tile": members[0].tile}
    return {
        "ph": "X",
        "name": " + ".join(node.name for node in members),
        "cat": members[0].kind.value,
        "pid": pid,
        "tid": 1 + graph.group_of[step[0]],
        "ts": _microseconds(start),
        "dur": _microseconds(end - start),
        "args": arguments,
    }


def _arrow_ends(graph: Graph, step: tuple[int, ...], pid: int, shown: _Shown) -> list[dict[str, Any]]:
    """An arrow leaves a collective that somebody waits for, and enters its first wait.

    It enters a nanosecond before the wait ends, when what comes next is not open yet.
    """
    found: list[dict[str, Any]] = []
    for member in step:
        if graph.waits_of.get(member):
            start = _microseconds(shown.at[member][0])
            arrow = {"ph": "s", "id": member, "name": "wait", "cat": "wait", "pid": pid}
            found.append({**arrow, "tid": 1 + graph.group_of[member], "ts": start})
        for comm in graph.waits_for[member]:
            if graph.waits_of[comm][0] == member:
                at = max(shown.at[member][0], shown.at[member][1] - 1, shown.at[comm][0])
                arrow = {"ph": "f", "bp": "e", "id": comm, "name": "wait", "cat": "wait", "pid": pid}
                found.append({**arrow, "tid": 0, "ts": _microseconds(at)})
    return found
