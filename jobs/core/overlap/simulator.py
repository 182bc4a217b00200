"""When every node of an issue order runs: one compute stream, one comm stream for each group.

A collective starts when its group is free and everything issued before it on the compute stream is done
(the comm stream waits for an event recorded at issue). A wait stalls the compute stream until its
collective has ended. Views and host barriers take no time.
"""

from dataclasses import dataclass

from jobs.core.overlap.graph import Graph, Kind, Steps
from jobs.core.overlap.interference import slowed_times

Interval = tuple[float, float]


@dataclass(frozen=True)
class Timeline:
    """Seconds from the start of the schedule.

    Attributes:
        starts_s, ends_s: of each node, members of a bucket alike. A wait's start is when the compute stream
            reached it, its end when it was let go.
        exposed_comm_s: the time in which some collective runs and compute does not.
        compute_idle_s: the makespan without the compute stream's busy time.
    """

    starts_s: tuple[float, ...]
    ends_s: tuple[float, ...]
    makespan_s: float
    exposed_comm_s: float
    compute_idle_s: float


def simulate(graph: Graph, steps: Steps) -> Timeline:
    """Run an issue order on ideal streams, or on streams that slow each other down."""
    starts, ends = slowed_times(graph, steps) if graph.slowed else ideal_times(graph, steps)
    makespan = max(ends, default=0.0)
    compute = _intervals(graph, steps, Kind.COMPUTE, starts, ends)
    comm = _union(_intervals(graph, steps, Kind.COMM, starts, ends))
    busy = sum(end - start for start, end in compute)
    hidden = _overlap(comm, compute)
    return Timeline(
        tuple(starts),
        tuple(ends),
        makespan,
        max(0.0, sum(end - start for start, end in comm) - hidden),
        max(0.0, makespan - busy),
    )


def makespan_s(graph: Graph, steps: Steps) -> float:
    """Only the end of the last node."""
    starts_ends = slowed_times(graph, steps) if graph.slowed else ideal_times(graph, steps)
    return max(starts_ends[1], default=0.0)


def ideal_times(graph: Graph, steps: Steps) -> tuple[list[float], list[float]]:
    """Start and end of each node when overlap costs nothing."""
    nodes, waits_for, group_of = graph.nodes, graph.waits_for, graph.group_of
    starts = [0.0] * len(nodes)
    ends = [0.0] * len(nodes)
    compute_free = 0.0
    group_free = [0.0] * len(graph.groups)
    for step in steps:
        first = step[0]
        kind = nodes[first].kind
        if kind is Kind.COMPUTE:
            start = compute_free
            end = compute_free = start + graph.bucket_time_s(step)
        elif kind is Kind.COMM:
            group = group_of[first]
            start = max(group_free[group], compute_free)
            end = group_free[group] = start + graph.bucket_time_s(step)
        else:
            start = compute_free
            for comm in waits_for[first]:
                compute_free = max(compute_free, ends[comm])
            end = compute_free
        for member in step:
            starts[member], ends[member] = start, end
    return starts, ends


def _intervals(
    graph: Graph, steps: Steps, kind: Kind, starts: list[float], ends: list[float]
) -> list[Interval]:
    chosen = [step[0] for step in steps if graph.nodes[step[0]].kind is kind]
    return [(starts[index], ends[index]) for index in chosen if ends[index] > starts[index]]


def _union(intervals: list[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _overlap(first: list[Interval], second: list[Interval]) -> float:
    """Common length of two sorted lists of disjoint intervals."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] <= second[j][1]:
            i += 1
        else:
            j += 1
    return total
