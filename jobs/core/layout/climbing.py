"""Better layouts by single moves: groups between replicas, devices between groups, cuts within a node."""

from collections.abc import Callable, Iterator, Sequence

from jobs.core.layout.anytime import AnytimeSearch, Candidate, Pipes
from jobs.core.layout.drafts import Group
from jobs.core.layout.instance import Device, Layout

MOST_KINDS = 8  # kinds of replicas looked at in one round
GAIN = 1 - 1e-9

Change = dict[int, list[Group]]  # replicas by number, as they would be


class Climber:
    """Walks from a layout to better neighbours by their estimates; each step is then finished exactly."""

    def __init__(self, search: AnytimeSearch, estimate: Callable[[Pipes], float | None]) -> None:
        self.search = search
        self.estimate = estimate
        self.work = search.work
        self.sizes = search.instance.legal_sizes

    def climb(self, start: Candidate) -> Iterator[Candidate]:
        """Yield a finished layout after every step that lowers the estimate, until none does."""
        pipes = self._pipes(start.layout)
        best = self.estimate(pipes)
        while best is not None and self.search.keep_going():
            step: tuple[float, Pipes] | None = None
            for change in self._changes(pipes):
                trial = [change.get(index, pipe) for index, pipe in enumerate(pipes)]
                time = self.estimate(trial) if all(trial) else None
                if time is not None and time < (step[0] if step else best * GAIN):
                    step = (time, trial)
                if not self.search.keep_going():
                    break
            if step is None:
                return
            best, pipes = step
            candidate = self.search.finish(pipes)
            if candidate is not None:
                yield candidate

    def _pipes(self, layout: Layout) -> Pipes:
        return [
            [
                self._group([self.search.instance.device(name) for name in stage.devices])
                for stage in replica.stages
            ]
            for replica in layout.replicas
        ]

    def _group(self, devices: Sequence[Device]) -> Group:
        return Group(self.work.group_type(devices), tuple(devices))

    def _changes(self, pipes: Pipes) -> Iterator[Change]:
        kinds = {tuple(sorted(group.kind for group in pipe)): index for index, pipe in enumerate(pipes)}
        chosen = sorted(kinds.values())[:MOST_KINDS]
        idle = self._idle(pipes)
        for a in chosen:
            yield from self._recut(a, pipes[a])
            yield from self._add(a, pipes[a], idle)
            for b in chosen:
                if a != b:
                    yield from self._between(a, b, pipes)

    def _recut(self, number: int, pipe: Sequence[Group]) -> Iterator[Change]:
        """Drop a group, halve one, or join two of one node."""
        for index, group in _one_of_each_kind(pipe):
            rest = [*pipe[:index], *pipe[index + 1 :]]
            yield {number: rest}
            half = len(group.devices) // 2
            if 2 * half == len(group.devices) and half in self.sizes:
                ordered = sorted(group.devices, key=lambda device: -device.speed)
                yield {number: [*rest, self._group(ordered[:half]), self._group(ordered[half:])]}
            for other in _of_node(rest, group.devices[0].node):
                if len(other.devices) + len(group.devices) in self.sizes:
                    joined = self._group(group.devices + other.devices)
                    yield {number: [*(kept for kept in rest if kept is not other), joined]}

    def _add(self, number: int, pipe: Sequence[Group], idle: dict[str, list[Device]]) -> Iterator[Change]:
        """Put idle devices of one node to work as one more stage."""
        if len(pipe) < self.work.layers:
            for devices in idle.values():
                for size in self.sizes:
                    if size <= len(devices):
                        yield {number: [*pipe, self._group(devices[:size])]}

    def _between(self, a: int, b: int, pipes: Pipes) -> Iterator[Change]:
        """Give a group of a to b, exchange groups, or exchange devices of groups on one node."""
        for i, group in _one_of_each_kind(pipes[a]):
            rest_a = [*pipes[a][:i], *pipes[a][i + 1 :]]
            if len(pipes[b]) < self.work.layers:
                yield {a: rest_a, b: [*pipes[b], group]}
            for j, other in _one_of_each_kind(pipes[b]):
                rest_b = [*pipes[b][:j], *pipes[b][j + 1 :]]
                if a < b and group.kind != other.kind:
                    yield {a: [*rest_a, other], b: [*rest_b, group]}
                slow = min(group.devices, key=lambda device: device.speed)
                fast = max(other.devices, key=lambda device: device.speed)
                if slow.node == fast.node and slow.speed < fast.speed:
                    yield {
                        a: [*rest_a, self._group([fast if d is slow else d for d in group.devices])],
                        b: [*rest_b, self._group([slow if d is fast else d for d in other.devices])],
                    }

    def _idle(self, pipes: Pipes) -> dict[str, list[Device]]:
        working = {device.id for pipe in pipes for group in pipe for device in group.devices}
        found: dict[str, list[Device]] = {}
        for device in self.search.instance.living:
            if device.id not in working:
                found.setdefault(device.node, []).append(device)
        for devices in found.values():
            devices.sort(key=lambda device: (-device.speed, -device.memory))
        return found


def _one_of_each_kind(pipe: Sequence[Group]) -> Iterator[tuple[int, Group]]:
    """The first group of each type and set of member speeds."""
    seen = set()
    for index, group in enumerate(pipe):
        key = (group.kind, tuple(sorted(device.speed for device in group.devices)))
        if key not in seen:
            seen.add(key)
            yield index, group


def _of_node(pipe: Sequence[Group], node: str) -> list[Group]:
    return [group for group in pipe if group.devices[0].node == node]
