"""Simulated jobs for `forebay bench detect`, and the simpler detectors it is compared with."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from telemetry.core.detector import StepBatch

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SimulatedJob:
    """A job whose sequences vary by 1.6x in work and whose ranks jitter; one rank may turn slow."""

    replicas: int
    stages: int
    tp: int
    jitter: float
    seed: int
    sequences: bool = True
    slow_rank: int | None = None
    onset: int = 0
    factor: float = 1.0

    def steps(self, count: int) -> Iterator[StepBatch]:
        """Yield so many steps; the first three are warm-up, every 50th has a pause that nobody tagged."""
        rng = np.random.default_rng(self.seed)
        rank = np.arange(self.replicas * self.stages * self.tp)
        replica, stage = rank // (self.stages * self.tp), rank // self.tp % self.stages
        for step in range(count):
            work = rng.uniform(0.25, 4.0, self.replicas) if self.sequences else np.ones(self.replicas)
            own = 0.4 * (0.6 + 0.18 * work)[replica] * np.exp(self.jitter * rng.standard_normal(len(rank)))
            own *= (20.0, 4.5, 1.5)[step] if step < 3 else 1.0
            if self.slow_rank is not None and step >= self.onset:
                own[self.slow_rank] *= self.factor
            wall = np.full(len(rank), own.max() * 1.3 + (30.0 if step and step % 50 == 0 else 0.0))
            yield self._batch(step, rank, replica, stage, own, wall, work[replica] * 8e6)

    def _batch(
        self,
        step: int,
        rank: NDArray[np.int64],
        replica: NDArray[np.int64],
        stage: NDArray[np.int64],
        own: Array,
        wall: Array,
        sum_sq: Array,
    ) -> StepBatch:
        tokens = np.full(len(rank), 8192.0)
        if self.tp == 1:
            return StepBatch(
                step, rank, replica, stage, own, np.full(len(rank), np.nan), wall, tokens, sum_sq
            )
        whole = np.repeat(own.reshape(-1, self.tp).max(axis=1), self.tp) * 1.02
        return StepBatch(step, rank, replica, stage, whole, whole - own, wall, tokens, sum_sq)


def random_injection(seed: int) -> tuple[SimulatedJob, int]:
    """Return a job with one random slow rank, and how many steps to watch it."""
    rng = np.random.default_rng(seed)
    replicas, stages = int(rng.choice([2, 3, 4, 8])), int(rng.choice([1, 2, 4]))
    onset = int(rng.integers(30, 60))
    job = SimulatedJob(
        replicas,
        stages,
        int(rng.choice([1, 2])),
        float(rng.choice([0.01, 0.02, 0.03])),
        seed,
        bool(rng.integers(2)),
        int(rng.integers(replicas * stages)),
        onset,
        float(rng.choice([1.25, 1.5, 2.0, 2.5, 4.0, 10.0])),
    )
    return job, onset + 40


class IterationThreshold:
    """An alarm when an iteration takes 1.25 times the running median: no workload model, no peers."""

    def __init__(self) -> None:
        self.recent: list[float] = []
        self.alarms = 0

    def update(self, batch: StepBatch) -> None:
        """Take one step."""
        wall = float(np.median(batch.wall_s))
        if len(self.recent) >= 20 and wall > 1.25 * float(np.median(self.recent)):
            self.alarms += 1
        self.recent = [*self.recent[-99:], wall]


class RelativeScore:
    """An alarm when a rank's speed against the best of its stage falls below 0.75: assumes equal work."""

    def __init__(self) -> None:
        self.steps = 0
        self.alarms = 0

    def update(self, batch: StepBatch) -> None:
        """Take one step."""
        self.steps += 1
        own = batch.compute_s - np.nan_to_num(batch.wait_s)
        if self.steps > 5:
            self.alarms += any(
                (own[batch.stage == stage].min() / own[batch.stage == stage]).min() < 0.75
                for stage in np.unique(batch.stage)
            )
