"""From measured chunk times to what a layer costs on a healthy device, and back to iteration times."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from jobs.core.training.model import ModelShape

# Of a healthy device's speed, what each doubling of a tensor-parallel group leaves (estimated).
DOUBLING = 0.95
# Until a job has measured anything: a slow core's work in a second (estimated).
FLOPS_PER_S = 2e9


def efficiency(size: int) -> float:
    """Return the efficiency of a tensor-parallel group (estimated)."""
    return float(DOUBLING ** math.log2(size))


@dataclass(frozen=True)
class LayerCosts:
    """Seconds of one micro-batch through each layer on one healthy device; `measured` says from where."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    measured: bool


@dataclass(frozen=True)
class _Sample:
    first: int
    last: int
    seconds: float  # on one healthy device


def layer_costs(
    model: ModelShape,
    layout: Mapping[str, Any],
    measured: Mapping[str, Mapping[str, float]],
    speeds: Mapping[int, float],
) -> LayerCosts:
    """Return what each layer costs.

    `measured` holds for each rank (`"3"`) its own seconds of one micro-batch, `forward_s` and `backward_s`
    (the weight gradient included); a slow rank counts with its speed taken out.
    """
    weights = [model.layer_flops(layer) for layer in range(model.layers)]
    forward = _samples(layout, measured, speeds, "forward_s")
    backward = _samples(layout, measured, speeds, "backward_s")
    if not forward or not backward:
        scale = 1 / FLOPS_PER_S
        return LayerCosts(tuple(w * scale for w in weights), tuple(2 * w * scale for w in weights), False)
    return LayerCosts(_split(forward, weights), _split(backward, weights), True)


def _samples(
    layout: Mapping[str, Any],
    measured: Mapping[str, Mapping[str, float]],
    speeds: Mapping[int, float],
    name: str,
) -> list[_Sample]:
    found = []
    for replica in layout["replicas"]:
        first = 0
        for stage in replica["stages"]:
            last = first + stage["layers"]
            ranks = [int(device[1:]) for device in stage["devices"]]
            # Members of a group wait for each other: the fastest one's own time is the least disturbed.
            own = [
                measured[str(rank)][name] * speeds.get(rank, 1.0)
                for rank in ranks
                if measured.get(str(rank), {}).get(name, 0) > 0 and speeds.get(rank, 1.0) > 0
            ]
            if own:
                size = len(ranks)
                found.append(_Sample(first, last, min(own) * size * efficiency(size)))
            first = last
    return found


def _split(samples: list[_Sample], weights: list[float]) -> tuple[float, ...]:
    """Deal stages' times to layers: inner ones alike, the last with its extra, by least squares.

    Where no stage lacks the last layer the split follows the layers' work.
    """
    layers = len(weights)
    rows = np.array([[s.last - s.first, s.last == layers] for s in samples], dtype=float)
    seconds = np.array([s.seconds for s in samples])
    if len({tuple(row) for row in rows.tolist()}) > 1 and not rows[:, 1].all():
        (inner, extra), *_ = np.linalg.lstsq(rows, seconds, rcond=None)
        if inner > 0:
            return (*[float(inner)] * (layers - 1), float(max(inner * 0.05, inner + extra)))
    scale = median(s.seconds / sum(weights[s.first : s.last]) for s in samples)
    return tuple(weight * scale for weight in weights)


@dataclass(frozen=True)
class Reference:
    """A layout in which the job ran: what it simulates to, and what its iterations really took."""

    simulated_s: float
    measured_s: float

    def proportion(self, simulated_s: float) -> float:
        """Return what another layout takes if it takes longer than simulated by the same factor."""
        return simulated_s * self.measured_s / self.simulated_s


@dataclass(frozen=True)
class Calibration:
    """How simulated iteration times become predictions: by what this job really took.

    A real iteration takes longer than the simulation of its chunks: optimizer, reductions and dispatch come
    on top. `present` is the layout as it runs now, `calm` the one in which it last ran with nothing wrong.
    `spread` are the 10th and the 90th percentile of recent iterations over their median.
    """

    present: Reference | None
    calm: Reference | None = None
    spread: tuple[float, float] = (1.0, 1.0)

    def predict(self, simulated_s: float) -> float:
        """Return what a layout that simulates to so many seconds will really take.

        Between the two references on the line through them, beyond them in proportion to the nearer one.
        """
        rows = self._references()
        if not rows:
            return simulated_s
        low, high = min(rows, key=_simulated), max(rows, key=_simulated)
        if simulated_s <= low.simulated_s or high.measured_s <= low.measured_s:
            return (low if simulated_s <= low.simulated_s else rows[0]).proportion(simulated_s)
        if simulated_s >= high.simulated_s:
            return high.proportion(simulated_s)
        share = (simulated_s - low.simulated_s) / (high.simulated_s - low.simulated_s)
        return low.measured_s + share * (high.measured_s - low.measured_s)

    def interval(self, simulated_s: float) -> tuple[float, float]:
        """Return the bounds of a prediction: by either reference alone, and by how iterations vary."""
        found = [self.predict(simulated_s), *(row.proportion(simulated_s) for row in self._references())]
        return min(found) * self.spread[0], max(found) * self.spread[1]

    def _references(self) -> list[Reference]:
        return [row for row in (self.present, self.calm) if row is not None]

    def to_json(self) -> dict[str, Any]:
        """Return the calibration as plain data."""
        return {
            "present": None if self.present is None else asdict(self.present),
            "calm": None if self.calm is None else asdict(self.calm),
            "spread": list(self.spread),
        }


def _simulated(row: Reference) -> float:
    return row.simulated_s
