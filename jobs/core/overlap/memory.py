"""Live bytes along an issue order, by the lifetimes of storages.

A storage appears with its producer and goes after the last use of any alias; the input of a collective stays
until the first wait of that collective, because an asynchronous backend may still read it. What nobody waits
for stays to the end, as do the storages of outputs. Each step is measured before its inputs go.
"""

from dataclasses import dataclass

from jobs.core.overlap.graph import Graph, Steps


@dataclass(frozen=True)
class MemoryProfile:
    """Bytes at each step of the order.

    Attributes:
        live_bytes: while the step runs.
        peak_step: the first step that reaches the peak.
    """

    live_bytes: tuple[float, ...]
    peak_bytes: float
    peak_step: int


def peak_bytes(graph: Graph, steps: Steps) -> float:
    """The largest live size along the order."""
    return memory_profile(graph, steps).peak_bytes


def memory_profile(graph: Graph, steps: Steps) -> MemoryProfile:
    """Follow the live bytes through the order."""
    release = release_steps(graph, steps)
    freed: list[float] = [0] * (len(steps) + 1)
    for step in steps:
        for member in step:
            freed[release[member]] += graph.nodes[member].size_bytes
    live: float = 0
    profile: list[float] = []
    for position, step in enumerate(steps):
        live += sum(graph.births_bytes[member] for member in step)
        profile.append(live)
        live -= freed[position]
    peak = max(profile, default=0)
    return MemoryProfile(tuple(profile), peak, profile.index(peak) if profile else 0)


def release_steps(graph: Graph, steps: Steps) -> list[int]:
    """After which step each node's storage goes; the number of steps for those that stay to the end."""
    count = len(steps)
    step_of = [0] * len(graph.nodes)
    for position, step in enumerate(steps):
        for member in step:
            step_of[member] = position
    release = list(step_of)
    for index, storages in enumerate(graph.reads):
        for storage in storages:
            release[storage] = max(release[storage], step_of[index])
    for step in steps:
        if step[0] in graph.waits_of:
            _hold_comm(graph, step, step_of, release, count)
    for output in graph.outputs:
        for storage in graph.roots[output]:
            release[storage] = count
    for step in steps:
        if len(step) > 1 and graph.bucket_is_one_storage:
            last = max(release[member] for member in step)
            for member in step:
                release[member] = last
    return release


def _hold_comm(graph: Graph, step: tuple[int, ...], step_of: list[int], release: list[int], end: int) -> None:
    """Inputs until the first wait of the collective or bucket; a buffer nobody waits for to the end."""
    waits = [step_of[wait] for member in step for wait in graph.waits_of[member]]
    first_wait = min(waits, default=end)
    for member in step:
        for storage in graph.reads[member]:
            release[storage] = max(release[storage], first_wait)
        if not graph.waits_of[member]:
            release[member] = end
