"""A lower bound on the iteration time of any layout, for clusters of any size.

Every device is taken to be as fast as the fastest, any devices may form a group, and layers may be divided
(a relaxation). For m micro-batches, stage times t_i, rates r_i, w_i stages after stage i, and a backward pass
that is at least the part h of every layer, two bounds on the makespan T hold (see `pipelines`):

* T >= m t_i + sum of earlier t. Then n devices do at most A(n) T / m of the work of a micro-batch, where
  A(n) = max over k of k e(k) + (1 - 1/m) A(n - k).
* T >= sum t + c_i t_i, c_i = (m-1) h + max(0, m-1-w_i) (1-h). With y_i >= 0 that sum to 1,
  T >= sum t_i (1 + y_i c_i), so T >= u W for work W unless sum max(0, u r_i - 1) / c_i > 1. The largest such
  sum for n devices is found stage by stage from the last one.

A replica thus needs at least n(m, T) devices. The D replicas together run all micro-batches, so D times the
lower convex hull of n(., T) at M / D may not exceed the devices there are.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jobs.core.layout.work import Work

DENSE = 192  # up to so many micro-batches every number is looked at, beyond every third percent
MOST_COUNTED = 1024  # devices of one replica beyond which no further need is told apart
PRECISION = 1e-9
COARSE = 2e-3  # how finely the bound is found where it does not prove the layout optimal

Floats = NDArray[np.float64]


class ClusterBound:
    """The relaxation of one instance, for times of at most `below` (the time of a known layout)."""

    def __init__(self, work: Work, below: float) -> None:
        self.work = work
        self.below = below * (1 - PRECISION)
        self.replicas = work.instance.replicas
        living = work.instance.living
        top = max(device.speed for device in living)
        # Two ways to count what there is: heads, and speed in units of the fastest device.
        self.devices = len(living)
        self.speed = sum(device.speed for device in living) / top
        self.rates = {k: k * work.instance.efficiency[k] * top for k in work.instance.legal_sizes}
        # A replica has no more stages than layers, so it cannot use more devices than this.
        self.usable = min(self.devices, work.layers * max(self.rates))
        self.cap = min(self.usable, MOST_COUNTED)
        self.best_per_device = max(rate / k for k, rate in self.rates.items())
        most = self.usable * self.best_per_device * below / max(work.total, 1e-300)
        self.grid = _grid(work.microbatches, most)
        # Between two grid points a replica needs at least what it needs at the lower one.
        self.upper = np.append(self.grid[1:] - 1, work.microbatches)
        self.power = self._power()

    def _power(self) -> Floats:
        """A(n) for every n up to the cap and every m of the grid; shape (cap + 1, grid)."""
        q = 1 - 1 / self.grid
        power = np.zeros((self.cap + 1, len(self.grid)))
        for n in range(1, self.cap + 1):
            power[n] = power[n - 1]
            for k, rate in self.rates.items():
                if k <= n:
                    np.maximum(power[n], rate + q * power[n - k], out=power[n])
        return power

    def lower_bound(self) -> float:
        """The best bound; just under `below` if that is what it reaches."""
        if self._excluded(self.below):
            return self.below
        low, high = 0.0, self.below
        while high - low > COARSE * self.below:
            middle = (low + high) / 2
            low, high = (middle, high) if self._excluded(middle) else (low, middle)
        return low

    def _excluded(self, time: float) -> bool:
        """Whether no layout of the relaxation takes at most this long."""
        if time <= 0 or self.work.total == 0:
            return False
        # A little more time than asked, so that rounding never excludes what is possible.
        time *= 1 + 1e-12
        work = self.grid * self.work.total / time
        needed = np.maximum(_first(self.power, work), self._through(time))
        needed = np.maximum(needed, work / self.best_per_device)
        needed[needed > self.usable] = np.inf
        # Devices of unequal speed fill groups but one, so less than a group's worth of speed is unsure.
        sure_speed = np.maximum(needed - max(self.rates), 0)
        return self._too_much(needed, self.devices) or self._too_much(sure_speed, self.speed)

    def _through(self, time: float) -> Floats:
        """Least devices by the second bound, for every m of the grid."""
        per_work = time / self.work.total
        gains = {k: max(0.0, per_work * rate - 1) for k, rate in self.rates.items()}
        part = self.work.least_backward_part
        best = np.zeros((self.cap + 1, len(self.grid)))
        # A stage in front of all others first, the last stage in the end.
        for after in reversed(range(min(self.work.layers, self.cap // min(self.rates)))):
            weight = (self.grid - 1) * part + np.maximum(self.grid - 1 - after, 0) * (1 - part)
            longer = np.zeros_like(best)
            # A stage that gains nothing still takes its place: those in front of it weigh less.
            for k, gain in gains.items():
                if k <= self.cap:
                    with_stage = best[: self.cap + 1 - k] + gain / np.maximum(weight, 1e-9)
                    np.maximum(longer[k:], with_stage, out=longer[k:])
            best = longer
        return _first(best, np.full(len(self.grid), 1 - 1e-9))

    def _too_much(self, needed: Floats, there: float) -> bool:
        total = self.work.microbatches
        if self.replicas is None:
            return bool((needed / self.upper).min() * total > there * (1 + 1e-12))
        busiest = needed[np.searchsorted(self.upper, -(-total // self.replicas))]
        together = self.replicas * hull_at(self.upper, needed, total / self.replicas)
        return bool(busiest > there or together > there * (1 + 1e-12))


def _first(table: Floats, wanted: Floats) -> Floats:
    """For each column the first row that reaches the wanted value; the number of rows where none does."""
    reached = table >= wanted
    return np.where(reached.any(axis=0), reached.argmax(axis=0), len(table)).astype(float)


def _grid(microbatches: int, most: float) -> Floats:
    """Numbers of micro-batches of a replica; beyond `most` no replica can run them, so one such is enough."""
    last = int(min(microbatches, most + 1))
    points = set(range(1, min(last, DENSE) + 1)) | {last}
    if last > DENSE:
        steps = int(np.log(last / DENSE) / 0.03) + 2
        points |= set(np.geomspace(DENSE, last, steps).astype(int).tolist())
    return np.array(sorted(points), dtype=float)


def hull_at(x: Sequence[float] | Floats, y: Floats, at: float) -> float:
    """The lower convex hull of the points (x, y) and (0, 0), which rises, at one place."""
    hull: list[tuple[float, float]] = [(0.0, 0.0)]
    for point in zip(map(float, x), map(float, y), strict=True):
        if point[1] == np.inf:
            break
        while len(hull) > 1 and _turns_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    if at > hull[-1][0]:
        return float("inf")
    xs, ys = zip(*hull, strict=True)
    return float(np.interp(at, xs, ys))


def _turns_down(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])
