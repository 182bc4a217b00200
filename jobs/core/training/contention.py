"""How long an iteration takes where ranks share cores: pipelines simulated with every core's time divided.

The planner's own simulation gives each rank a device to itself. Two ranks on one core take turns:
while both have work each gets half of it, and while one of them waits the other gets all of it.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from jobs.core.pipeline import Chunk, Kind
from jobs.core.pipeline.schedules import one_f_one_b

EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class Worker:
    """A rank of a stage: its core, its work as a multiple of a healthy one's, and its rest.

    A rank whose core is slow has more work. One that is held up by something else (an injected fault, say)
    rests after its work, `rest` times as long as that took on the wall, and leaves its core to others.
    """

    core: Hashable
    work: float = 1.0
    rest: float = 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """The workers of one tensor-parallel group; seconds of one micro-batch, with a core for each of them."""

    workers: tuple[Worker, ...]
    forward_s: float
    backward_s: float


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One replica, run as 1F1B."""

    stages: tuple[Stage, ...]
    microbatches: int


class _Part:
    """One worker's part of a chunk under way: `left_s` of work on its core, or of rest."""

    __slots__ = ("began_s", "is_resting", "left_s", "worker")

    def __init__(self, worker: Worker, left_s: float, began_s: float) -> None:
        self.worker, self.left_s, self.began_s = worker, left_s, began_s
        self.is_resting = False


def contended_makespan(pipelines: Sequence[Pipeline]) -> float:
    """Return the seconds until the last pipeline is through, all of them begun at once."""
    return _Contest(pipelines).run()


class _Contest:
    def __init__(self, pipelines: Sequence[Pipeline]) -> None:
        self.pipelines = pipelines
        self.orders = [one_f_one_b(len(p.stages), p.microbatches).ranks for p in pipelines]
        self.cursors = [[0] * len(p.stages) for p in pipelines]
        self.done: set[tuple[int, int, Kind, int]] = set()
        self.under_way: dict[tuple[int, int], list[_Part]] = {}
        self.clock_s = 0.0

    def run(self) -> float:
        places = [(i, j) for i, p in enumerate(self.pipelines) for j in range(len(p.stages))]
        while True:
            for place in places:
                if place not in self.under_way:
                    self._start(*place)
            if not self.under_way:
                return self.clock_s
            self._advance()

    def _start(self, replica: int, stage: int) -> None:
        chunk = self._next(replica, stage)
        if chunk is None or not self._may_start(replica, stage, chunk):
            return
        group = self.pipelines[replica].stages[stage]
        seconds = group.forward_s if chunk.kind is Kind.FORWARD else group.backward_s
        self.under_way[replica, stage] = [
            _Part(worker, seconds * worker.work, self.clock_s) for worker in group.workers
        ]

    def _next(self, replica: int, stage: int) -> Chunk | None:
        order, cursor = self.orders[replica][stage], self.cursors[replica][stage]
        return order[cursor] if cursor < len(order) else None

    def _may_start(self, replica: int, stage: int, chunk: Chunk) -> bool:
        if chunk.kind is Kind.FORWARD:
            return stage == 0 or (replica, stage - 1, Kind.FORWARD, chunk.microbatch) in self.done
        last = stage == len(self.pipelines[replica].stages) - 1
        return last or (replica, stage + 1, Kind.BACKWARD, chunk.microbatch) in self.done

    def _advance(self) -> None:
        """Let time pass until the next part is done with its work or its rest."""
        parts = [part for group in self.under_way.values() for part in group]
        loads = Counter(part.worker.core for part in parts if not part.is_resting)
        shares = [1 if part.is_resting else loads[part.worker.core] for part in parts]
        passed_s = min(part.left_s * share for part, share in zip(parts, shares, strict=True))
        self.clock_s += passed_s
        for part, share in zip(parts, shares, strict=True):
            part.left_s -= passed_s / share
            if part.left_s <= EPSILON and not part.is_resting and part.worker.rest > 0:
                part.is_resting, part.left_s = True, (self.clock_s - part.began_s) * part.worker.rest
        for place, group in list(self.under_way.items()):
            group[:] = [part for part in group if part.left_s > EPSILON]
            if not group:
                self._finish(*place)

    def _finish(self, replica: int, stage: int) -> None:
        chunk = self._next(replica, stage)
        assert chunk is not None
        self.done.add((replica, stage, chunk.kind, chunk.microbatch))
        self.cursors[replica][stage] += 1
        del self.under_way[replica, stage]
