"""A study with one device of its own and the bubbles of a pipeline: how much sooner it is done (simulated).

Early rungs go to bubbles, leaders to the exclusive device: it takes waiting containers of the highest rung,
and when none waits the highest one that runs in bubbles, from its checkpoint. A container of F trials takes
`fixed + each * F` device-seconds per epoch; a device with bubbles works at a fraction of an exclusive one's
speed. Promotion is asynchronous: of n trials that have ended a rung, floor(n / reduction) may go on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimulatedStudy:
    """A study's work.

    Attributes:
        rung_ends: epoch at which every rung ends; the last one is the budget of a trial.
        fixed_s: device-seconds of an epoch of a container, whatever its size.
        each_s: what every trial in it adds.
        largest: most trials of a container.
        target_s: seconds of the target, on the exclusive device, when the search is over.
    """

    trials: int
    rung_ends: tuple[int, ...]
    reduction: int
    fixed_s: float
    each_s: float
    largest: int
    target_s: float

    def seconds(self, rung: int, size: int) -> float:
        """Device-seconds of a container in a rung."""
        begin = self.rung_ends[rung - 1] if rung else 0
        return (self.rung_ends[rung] - begin) * (self.fixed_s + self.each_s * size)


def asha_rung_ends(grace: int, reduction: int, epochs: int) -> tuple[int, ...]:
    """Return the epochs grace, grace * reduction, ... up to the budget."""
    ends = []
    while grace < epochs:
        ends.append(grace)
        grace *= reduction
    return (*ends, epochs)


@dataclass(slots=True)
class _Container:
    rung: int
    size: int
    left_s: float


class _Search:
    """The search part, as events; device 0 is the exclusive one."""

    def __init__(self, study: SimulatedStudy, speeds: Sequence[float]) -> None:
        self.study, self.speeds = study, speeds
        self.waiting = [study.trials] + [0] * (len(study.rung_ends) - 1)
        self.ended = [0] * len(study.rung_ends)
        self.promoted = [0] * len(study.rung_ends)
        self.running: dict[int, _Container] = {}

    def run_s(self) -> float:
        """Return the seconds until the last container has ended."""
        now_s = 0.0
        while True:
            self._fill()
            if not self.running:
                return now_s
            step_s = min(c.left_s / self.speeds[d] for d, c in self.running.items())
            now_s += step_s
            for device, container in list(self.running.items()):
                container.left_s -= step_s * self.speeds[device]
                if container.left_s <= 1e-9:
                    self._end(self.running.pop(device))

    def _end(self, container: _Container) -> None:
        rung = container.rung
        self.ended[rung] += container.size
        if rung + 1 == len(self.waiting):
            return
        allowed = self.ended[rung] // self.study.reduction
        before = sum(self.waiting[: rung + 1]) + sum(c.size for c in self.running.values() if c.rung <= rung)
        if not before:
            allowed = max(allowed, 1)
        self.waiting[rung + 1] += max(0, allowed - self.promoted[rung])
        self.promoted[rung] = max(allowed, self.promoted[rung])

    def _fill(self) -> None:
        if 0 not in self.running:
            self._take(0, highest=True)
        idle = [d for d in range(1, len(self.speeds)) if d not in self.running and self.speeds[d] > 0]
        for number, device in enumerate(idle):
            self._take(device, highest=False, sharers=len(idle) - number)
        if 0 not in self.running and self.running:
            lent = max(self.running, key=lambda d: (self.running[d].rung, self.running[d].left_s))
            self.running[0] = self.running.pop(lent)

    def _take(self, device: int, *, highest: bool, sharers: int = 1) -> None:
        rungs = [rung for rung, count in enumerate(self.waiting) if count]
        if not rungs:
            return
        rung = max(rungs) if highest else min(rungs)
        # fused containers are split over idle devices first
        size = min(self.study.largest, math.ceil(self.waiting[rung] / sharers))
        self.waiting[rung] -= size
        self.running[device] = _Container(rung, size, self.study.seconds(rung, size))


def study_makespan_s(study: SimulatedStudy, speeds: Sequence[float]) -> float:
    """Return seconds to the end of the target on devices of these speeds; the first one is exclusive."""
    return _Search(study, speeds).run_s() + study.target_s / speeds[0]


def guest_speed(
    bubbles_s: Sequence[float], period_s: float, step_s: float, *, step_share: float, latency_s: float
) -> float:
    """Return a guest's speed in one device's bubbles, 1 being exclusive; too short ones are skipped."""
    fitting = [length for length in bubbles_s if step_s <= step_share * length]
    return sum(length - 2 * latency_s for length in fitting) / period_s
