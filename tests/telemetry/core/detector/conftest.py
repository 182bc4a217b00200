"""Simulated training jobs: what every rank reports, with whatever is wrong put in."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from telemetry.core.detector import Detector, StepBatch


@dataclass
class Job:
    """A job of so many replicas, stages and ranks in a group; rank = (replica * stages + stage) * tp + i."""

    replicas: int = 4
    stages: int = 2
    tp: int = 1
    jitter: float = 0.02
    seed: int = 0
    base_s: float = 0.4
    # rank -> [(first step, step after the last, factor)]
    slow: dict[int, list[tuple[int, float, float]]] = field(default_factory=dict)
    fleet_slow: tuple[int, float] | None = None
    stage_factor: tuple[float, ...] | None = None
    sequences: bool = False
    wall: bool = False
    wall_slow: tuple[int, float] | None = None
    waits: bool = False
    # (replica, stage) of a group whose own collectives turn slow, from which step, factor
    group_slow: tuple[int, int, int, float] | None = None
    first_steps_s: tuple[float, ...] = ()
    unit: dict[int, float] = field(default_factory=dict)

    def steps(self, count):
        """Yield the batches of so many steps."""
        rng = np.random.default_rng(self.seed)
        rank = np.arange(self.replicas * self.stages * self.tp)
        replica, stage = rank // (self.stages * self.tp), rank // self.tp % self.stages
        for step in range(count):
            yield self._step(step, rng, rank, replica, stage)

    def _step(self, step, rng, rank, replica, stage):
        nothing = np.full(len(rank), np.nan)
        own = self.base_s * np.exp(self.jitter * rng.standard_normal(len(rank)))
        tokens = sum_sq = wait = wall = nothing
        if self.sequences:
            # 1.6 times more work for the longest sequences of the same number of tokens.
            tokens = rng.integers(7800, 8200, self.replicas)[replica].astype(float)
            sum_sq = (rng.uniform(0.25, 4.0, self.replicas) * 8e6)[replica]
            own = own * (0.1 + 0.5 * tokens / 8000 + 0.18 * sum_sq / 8e6)
        if step < len(self.first_steps_s):
            own = own * self.first_steps_s[step]
        if self.stage_factor:
            own = own * np.array(self.stage_factor)[stage]
        for each, spells in self.slow.items():
            own[each] *= np.prod([factor for begin, end, factor in spells if begin <= step < end])
        if self.fleet_slow and step >= self.fleet_slow[0]:
            own = own * self.fleet_slow[1]
        compute = own
        if self.waits:
            compute = self._in_groups(step, own, replica, stage)
            wait = compute - own
        if self.wall:
            wall = np.full(len(rank), compute.max() * 1.3 * np.exp(0.01 * rng.standard_normal()))
            if self.wall_slow and step >= self.wall_slow[0]:
                wall = wall * self.wall_slow[1]
        factor = np.array([self.unit.get(each, 1.0) for each in rank])
        return StepBatch(step, rank, replica, stage, compute * factor, wait, wall, tokens, sum_sq)

    def _in_groups(self, step, own, replica, stage):
        compute = own.copy()
        for group in {(int(r), int(s)) for r, s in zip(replica, stage, strict=True)}:
            mine = (replica == group[0]) & (stage == group[1])
            compute[mine] = own[mine].max() * 1.03
            if self.group_slow and group == self.group_slow[:2] and step >= self.group_slow[2]:
                compute[mine] *= self.group_slow[3]
        return compute


@pytest.fixture
def job():
    """The factory of simulated jobs."""
    return Job


@pytest.fixture
def watch():
    """Run a detector over a job; returns the detector."""

    def run(job, steps=100):
        detector = Detector()
        for batch in job.steps(steps):
            detector.update(batch)
        return detector

    return run
