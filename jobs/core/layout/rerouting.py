"""ReCycle-like rerouting (Gandhi et al. 2024), simulated: the comparison that is not a layout of its own.

A replica whose stage is dead sends that stage's micro-batches to the same stage of the other replicas, which
run them between their own. Every group runs a ready backward first, and starts a forward while it holds fewer
micro-batches than 1F1B would for its share.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import ceil

from jobs.core.layout.allocation import share
from jobs.core.layout.costs import stage_times
from jobs.core.layout.instance import Instance, Layout, Replica

MOST_CHUNKS = 40_000  # simulated; beyond, rerouting is not compared


@dataclass(slots=True)
class _Group:
    """A living group: its times, the work that has arrived, what it holds."""

    forward_s: float
    backward_s: float
    most_held: int = 0
    held: int = 0
    free_at: float = 0.0
    forwards: list[tuple[float, int, int]] = field(default_factory=list)  # (arrival, micro-batch, replica)
    backwards: list[tuple[float, int, int]] = field(default_factory=list)

    def next_start(self) -> float | None:
        """When it can start something; None while nothing has arrived that it may run."""
        heads = [
            queue[0][0]
            for queue in (self.backwards, self.forwards if self.held < self.most_held else [])
            if queue
        ]
        return max(self.free_at, min(heads)) if heads else None

    def takes_backward(self, now: float) -> bool:
        """Whether what it starts now is a backward."""
        return bool(self.backwards) and (
            self.backwards[0][0] <= now or not self.forwards or self.held >= self.most_held
        )


def rerouted_time(instance: Instance, layout: Layout) -> tuple[float | None, str]:
    """Iteration time with dead stages rerouted, or None and the reason why it cannot be."""
    shapes = {tuple(stage.layers for stage in replica.stages) for replica in layout.replicas}
    if len(shapes) > 1:
        return None, "its replicas have different stages"
    shape = next(iter(shapes))
    if 2 * instance.microbatches * len(shape) > MOST_CHUNKS:
        return None, "too many chunks to simulate it"
    groups = _living_groups(instance, layout, shape)
    for position in range(len(shape)):
        if not any(stage == position for _, stage in groups):
            return None, f"no replica has a living stage {position}"
    times = []
    for counts in {
        tuple(r.microbatches for r in layout.replicas),
        _by_pace(groups, layout, instance.microbatches),
    }:
        shares = [Replica(count, row.stages) for count, row in zip(counts, layout.replicas, strict=True)]
        dealt = Layout(tuple(shares))
        fresh = _living_groups(instance, dealt, shape)
        routes = _routes(dealt, fresh, len(shape))
        _set_limits(fresh, routes, len(shape), dealt)
        times.append(_run(fresh, routes, len(shape), instance.transfer_s))
    return min(times), ""


def _by_pace(groups: dict[tuple[int, int], "_Group"], layout: Layout, microbatches: int) -> tuple[int, ...]:
    """Micro-batches dealt by the slowest living stage of each replica, as Greyhound would do first."""
    lines = []
    for r in range(len(layout.replicas)):
        paces = [group.forward_s + group.backward_s for (replica, _), group in groups.items() if replica == r]
        lines.append((sum(paces), max(paces, default=0.0)))
    return tuple(share(lines, microbatches))


def _living_groups(instance: Instance, layout: Layout, shape: Sequence[int]) -> dict[tuple[int, int], _Group]:
    groups = {}
    for r, replica in enumerate(layout.replicas):
        first = 0
        for s, stage in enumerate(replica.stages):
            devices = [instance.device(name) for name in stage.devices]
            if all(device.speed > 0 for device in devices):
                groups[r, s] = _Group(*stage_times(instance, devices, first, first + shape[s]))
            first += shape[s]
    return groups


def _routes(
    layout: Layout, groups: dict[tuple[int, int], _Group], stages: int
) -> dict[tuple[int, int], list[int]]:
    """For every micro-batch (replica, number) the replica that runs each of its stages."""
    load = dict.fromkeys(groups, 0.0)
    routes = {
        (r, j): [r] * stages for r, replica in enumerate(layout.replicas) for j in range(replica.microbatches)
    }
    for s in range(stages):
        lost = []
        for (r, j), route in routes.items():
            if (r, s) in groups:
                load[r, s] += groups[r, s].forward_s + groups[r, s].backward_s
            else:
                lost.append((j, r, route))
        heap = [(load[key], key[0]) for key in groups if key[1] == s]
        heapify(heap)
        for _, _, route in sorted(lost, key=lambda row: row[:2]):
            busy, peer = heappop(heap)
            route[s] = peer
            heappush(heap, (busy + groups[peer, s].forward_s + groups[peer, s].backward_s, peer))
    return routes


def _set_limits(
    groups: dict[tuple[int, int], _Group],
    routes: dict[tuple[int, int], list[int]],
    stages: int,
    layout: Layout,
) -> None:
    counts = dict.fromkeys(groups, 0)
    for route in routes.values():
        for s, peer in enumerate(route):
            counts[peer, s] += 1
    for (r, s), group in groups.items():
        group.most_held = max(1, ceil((stages - s) * counts[r, s] / layout.replicas[r].microbatches))


def _run(
    groups: dict[tuple[int, int], _Group],
    routes: dict[tuple[int, int], list[int]],
    stages: int,
    transfer_s: float,
) -> float:
    for (r, j), route in routes.items():
        heappush(groups[route[0], 0].forwards, (0.0, j, r))
    agenda: list[tuple[float, tuple[int, int]]] = []

    def plan(key: tuple[int, int]) -> None:
        start = groups[key].next_start()
        if start is not None:
            heappush(agenda, (start, key))

    for key in groups:
        plan(key)
    finished = 0.0
    while agenda:
        now, key = heappop(agenda)
        group, s = groups[key], key[1]
        if group.next_start() != now:
            continue
        if group.takes_backward(now):
            _, j, r = heappop(group.backwards)
            group.free_at = now + group.backward_s
            group.held -= 1
            target, queue = (routes[r, j][s - 1], s - 1), "backwards"
        else:
            _, j, r = heappop(group.forwards)
            group.free_at = now + group.forward_s
            group.held += 1
            target, queue = (routes[r, j][s + 1] if s + 1 < stages else key[0], s + 1), "forwards"
        finished = max(finished, group.free_at)
        if queue == "forwards" and s + 1 == stages:
            heappush(group.backwards, (group.free_at, j, r))
        elif queue == "forwards" or s > 0:
            heappush(getattr(groups[target], queue), (group.free_at + transfer_s, j, r))
            plan(target)
        plan(key)
    return finished
