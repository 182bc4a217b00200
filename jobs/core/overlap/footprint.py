"""The order with the smallest peak: best-first search over how far each stream has come."""

from heapq import heappop, heappush
from itertools import count

from jobs.core.overlap.graph import Graph, Steps
from jobs.core.overlap.lifetimes import Lifetimes, MemoryState
from jobs.core.overlap.streams import Positions, TileStreams

STATE_LIMIT = 60_000


def smallest_peak(tiles: TileStreams, state_limit: int = STATE_LIMIT) -> Steps | None:
    """The interleaving of the streams whose peak is least, or None when there are too many states.

    Live bytes depend only on what has been issued, so the best peak on the way into a state
    is all that counts.
    """
    graph: Graph = tiles.graph
    lifetimes = Lifetimes(graph)
    origin = (0,) * len(tiles.streams)
    memory, peak = _through(lifetimes, MemoryState(), 0, [(index,) for index in tiles.first_shared])
    order = count()
    heap = [(peak, -sum(origin), next(order), origin, memory)]
    came_from: dict[Positions, tuple[Positions, Steps]] = {}
    reached: set[Positions] = set()
    best = {origin: peak}
    while heap and len(reached) < state_limit:
        peak, _, _, at, memory = heappop(heap)
        if at in reached:
            continue
        reached.add(at)
        if at == tiles.lengths:
            return [(index,) for index in tiles.first_shared] + _back(came_from, at)
        for after, steps in _moves(tiles, at):
            if after in reached:
                continue
            then, highest = _through(lifetimes, memory, peak, steps)
            if highest < best.get(after, float("inf")):
                best[after] = highest
                came_from[after] = (at, steps)
                heappush(heap, (highest, -sum(after), next(order), after, then))
    return None


def _through(
    lifetimes: Lifetimes, memory: MemoryState, peak: float, steps: Steps
) -> tuple[MemoryState, float]:
    for step in steps:
        memory, during = lifetimes.after(memory, step)
        peak = max(peak, during)
    return memory, peak


def _moves(tiles: TileStreams, at: Positions) -> list[tuple[Positions, Steps]]:
    found: list[tuple[Positions, Steps]] = []
    for stream, members in enumerate(tiles.streams):
        if at[stream] < len(members) and tiles.legal(members[at[stream]], at):
            after = tuple(come + (k == stream) for k, come in enumerate(at))
            shared = tiles.shared_between(at, after)
            found.append((after, [(members[at[stream]],), *((index,) for index in shared)]))
    return found


def _back(came_from: dict[Positions, tuple[Positions, Steps]], at: Positions) -> Steps:
    pieces: list[Steps] = []
    while at in came_from:
        at, steps = came_from[at]
        pieces.append(steps)
    return [step for piece in reversed(pieces) for step in piece]
