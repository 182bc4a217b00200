"""Planning where ranks share cores: what a layout takes there, and the layout that takes least.

The planner of `jobs.core.layout` gives each rank a device to itself, and its proof holds for that. Here its
layouts are starting points: they are timed with their cores divided, and improved by small moves.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from jobs.core.layout.actions import Action, action_of
from jobs.core.layout.costs import group_rate, uses_dead_device, violation
from jobs.core.layout.instance import Instance, Layout, Replica, Stage
from jobs.core.training import contention

# So many layouts are timed at most; a small job's takes a millisecond.
MOST_TRIED = 600
# A move must bring this much, and a better plan in other respects may cost this much.
LEAST_STEP, AS_GOOD = 0.002, 0.03
SLOW_BELOW = 0.9  # of a healthy device's speed
GENTLENESS = {action: place for place, action in enumerate(Action)}


class SharedCores:
    """An instance whose devices share cores.

    `cores` names each device's core. `resting` are slow devices that are held up by something else than their
    core, which is then free for the others on it.
    """

    def __init__(self, instance: Instance, cores: Mapping[str, str], resting: Iterable[str] = ()) -> None:
        self.instance, self.cores, self.resting = instance, cores, frozenset(resting)
        self._known: dict[Layout, float] = {}

    def time(self, layout: Layout) -> float:
        """Return the simulated seconds of one iteration."""
        if layout not in self._known:
            pipelines = [self._pipeline(row) for row in layout.replicas]
            self._known[layout] = contention.contended_makespan(pipelines)
        return self._known[layout]

    def best(self, starts: Sequence[Layout]) -> Layout | None:
        """Return the fastest layout found from any of the starts.

        Of those about as fast, the one that leaves least to slow devices, for how slow they are is the least
        certain of all figures; then the one that changes least.
        """
        legal = [layout for layout in dict.fromkeys(starts) if self._is_legal(layout)]
        found = [self._climb(layout) for layout in sorted(legal, key=self.time)]
        found = [*legal, *found]
        if not found:
            return None
        limit = min(map(self.time, found)) * (1 + AS_GOOD)
        return min((each for each in found if self.time(each) <= limit), key=self._merit)

    def _merit(self, layout: Layout) -> tuple[int, int, float]:
        change = GENTLENESS[action_of(self.instance, layout) or Action.KEEP]
        return self._left_to_slow(layout), change, self.time(layout)

    def _left_to_slow(self, layout: Layout) -> int:
        """Micro-batches times layers that run on groups with a slow device."""
        return sum(
            row.microbatches * stage.layers
            for row in layout.replicas
            for stage in row.stages
            if any(self.instance.device(name).speed < SLOW_BELOW for name in stage.devices)
        )

    def _climb(self, layout: Layout) -> Layout:
        improved = True
        while improved:
            improved = False
            for other in neighbours(layout):
                if len(self._known) >= MOST_TRIED:
                    return layout
                if self._is_legal(other) and self.time(other) < self.time(layout) * (1 - LEAST_STEP):
                    layout, improved = other, True
                    break
        return layout

    def _is_legal(self, layout: Layout) -> bool:
        return not uses_dead_device(self.instance, layout) and violation(self.instance, layout) is None

    def _pipeline(self, row: Replica) -> contention.Pipeline:
        instance, stages, first = self.instance, [], 0
        for stage in row.stages:
            last = first + stage.layers
            devices = [replace(instance.device(name), speed=1.0) for name in stage.devices]
            rate = group_rate(instance, devices)
            stages.append(
                contention.Stage(
                    tuple(self._worker(name) for name in stage.devices),
                    (instance.forward_sums[last] - instance.forward_sums[first]) / rate,
                    (instance.backward_sums[last] - instance.backward_sums[first]) / rate,
                )
            )
            first = last
        return contention.Pipeline(tuple(stages), row.microbatches)

    def _worker(self, name: str) -> contention.Worker:
        slowness = 1 / self.instance.device(name).speed
        if name in self.resting:
            return contention.Worker(self.cores[name], rest=max(0.0, slowness - 1))
        return contention.Worker(self.cores[name], work=slowness)


def neighbours(layout: Layout) -> Iterator[Layout]:
    """Yield layouts one move away: a micro-batch, a layer, two stages' groups, a stage that is given up."""
    yield from _microbatches_moved(layout)
    for index, row in enumerate(layout.replicas):
        for stages in (*_layers_moved(row.stages), *_stage_given_up(row.stages)):
            yield _with(layout, {index: Replica(row.microbatches, stages)})
    yield from _groups_swapped(layout)


def _with(layout: Layout, changed: Mapping[int, Replica]) -> Layout:
    return Layout(tuple(changed.get(index, row) for index, row in enumerate(layout.replicas)))


def _microbatches_moved(layout: Layout) -> Iterator[Layout]:
    for giver, row in enumerate(layout.replicas):
        for taker, other in enumerate(layout.replicas):
            if giver != taker and row.microbatches > 1:
                yield _with(
                    layout,
                    {
                        giver: Replica(row.microbatches - 1, row.stages),
                        taker: Replica(other.microbatches + 1, other.stages),
                    },
                )


def _layers_moved(stages: tuple[Stage, ...]) -> Iterator[tuple[Stage, ...]]:
    for left in range(len(stages) - 1):
        for giver, taker in ((left, left + 1), (left + 1, left)):
            if stages[giver].layers > 1:
                yield _counted(stages, {giver: -1, taker: 1})


def _stage_given_up(stages: tuple[Stage, ...]) -> Iterator[tuple[Stage, ...]]:
    for index, stage in enumerate(stages):
        for heir in (index - 1, index + 1):
            if 0 <= heir < len(stages):
                grown = _counted(stages, {heir: stage.layers})
                yield (*grown[:index], *grown[index + 1 :])


def _counted(stages: tuple[Stage, ...], changes: Mapping[int, int]) -> tuple[Stage, ...]:
    return tuple(Stage(s.devices, s.layers + changes.get(i, 0)) for i, s in enumerate(stages))


def _groups_swapped(layout: Layout) -> Iterator[Layout]:
    places = [(i, j) for i, row in enumerate(layout.replicas) for j in range(len(row.stages))]
    devices = {(i, j): layout.replicas[i].stages[j].devices for i, j in places}
    for at, one in enumerate(places):
        for other in places[at + 1 :]:
            yield _grouped(layout, {**devices, one: devices[other], other: devices[one]})


def _grouped(layout: Layout, devices: Mapping[tuple[int, int], tuple[str, ...]]) -> Layout:
    rows = []
    for i, row in enumerate(layout.replicas):
        stages = tuple(Stage(devices[i, j], stage.layers) for j, stage in enumerate(row.stages))
        rows.append(Replica(row.microbatches, stages))
    return Layout(tuple(rows))
