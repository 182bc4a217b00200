"""Widths of elastic jobs by goodput (Pollux: Qiao et al., OSDI 2021, section 4).

Maximises the power mean (p = -1) of the jobs' speed-ups over their smallest width. Pollux searches whole
allocations with a genetic algorithm; here devices go one by one to the job whose next one lifts the mean
most, which for the concave speed-ups of data parallelism reaches the optimum of the relaxed problem.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cluster.core.policies.interface import Blocking, Policy
from cluster.core.workload import BoolColumn, IntColumn, JobTable

# A change of width has to pay for the restart that it costs.
RESTART_GAIN = 0.05


@dataclass(frozen=True, slots=True)
class ElasticJob:
    """A job that can run on several widths.

    Attributes:
        speed: width to useful progress per second.
        current: its width now, 0 while it waits.
    """

    name: str
    smallest: int
    largest: int
    speed: Callable[[int], float]
    current: int = 0


def allocate_widths(jobs: Sequence[ElasticJob], devices: int) -> dict[str, int]:
    """Return each job's number of devices, 0 for those that have to wait.

    Everybody's smallest width comes first, in the order given (all or nothing); then the rest is handed out.
    A running job keeps its width where the change would gain less than the restart costs.
    """
    widths: dict[str, int] = {}
    left = devices
    for job in jobs:
        widths[job.name] = job.smallest if job.smallest <= left else 0
        left -= widths[job.name]
    left = _grow([job for job in jobs if widths[job.name]], widths, left)
    return _avoid_restarts(jobs, widths, left)


def _grow(jobs: Sequence[ElasticJob], widths: dict[str, int], left: int) -> int:
    """Give devices to the largest gains of the mean of inverse speed-ups; return what is left."""
    heap = [entry for job in jobs if (entry := _next_step(job, widths[job.name], left)) is not None]
    heapq.heapify(heap)
    by_name = {job.name: job for job in jobs}
    while heap and left:
        _, name, width = heapq.heappop(heap)
        if width - widths[name] > left:
            continue
        left -= width - widths[name]
        widths[name] = width
        entry = _next_step(by_name[name], width, left)
        if entry is not None:
            heapq.heappush(heap, entry)
    return left


def _next_step(job: ElasticJob, width: int, left: int) -> tuple[float, str, int] | None:
    """Return a job's most rewarding growth per device as (-gain, name, new width), if any gains.

    Looks beyond the next device: the second replica can be worth less than the fourth.
    """
    base = job.speed(job.smallest)
    now = base / max(job.speed(width), 1e-12)
    best = None
    for wider in range(width + 1, min(job.largest, width + left) + 1):
        gain = (now - base / max(job.speed(wider), 1e-12)) / (wider - width)
        if gain > 1e-9 and (best is None or gain > -best[0] + 1e-12):
            best = (-gain, job.name, wider)
    return best


def _avoid_restarts(jobs: Sequence[ElasticJob], widths: dict[str, int], left: int) -> dict[str, int]:
    """Go back to the present width where that fits and costs little speed."""
    for job in jobs:
        new = widths[job.name]
        if not job.current or not new or new == job.current or job.current - new > left:
            continue
        if job.speed(new) <= job.speed(job.current) * (1 + RESTART_GAIN):
            left -= job.current - new
            widths[job.name] = job.current
    return widths


def speed_on(speedup: Sequence[float], width: int) -> float:
    """Return the speed on so many devices; without a table each device adds as much as the first."""
    return float(speedup[min(width, len(speedup)) - 1]) if speedup else float(width)


class GoodputWidths(Policy):
    """By arrival; how many devices an elastic job gets is chosen by what each adds to its useful speed."""

    name = "pollux"
    title = "Elastic jobs get devices where they add most useful speed (Pollux)"
    blocking = Blocking.EASY
    preempts = True
    sizes = True

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._declined: BoolColumn = np.zeros(0, dtype=np.bool_)

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        widths = self._widths(jobs, rows)
        width = np.array([widths[code] for code in jobs.job[rows].tolist()], dtype=np.int64)
        further = jobs.unit[rows] > 0
        self._declined = further & (jobs.unit[rows] >= width)
        stage = np.where(self._declined, 2, np.where(further, 1, 0))
        return rows[np.lexsort((rows, jobs.unit[rows], stage))]

    def declined(self, jobs: JobTable, rows: IntColumn) -> BoolColumn:
        return self._declined

    def _widths(self, jobs: JobTable, rows: IntColumn) -> dict[int, int]:
        """Return the number of devices of every job, by its code."""
        members: dict[int, list[int]] = {}
        for row in rows.tolist():
            members.setdefault(int(jobs.job[row]), []).append(row)
        order = sorted(members.items(), key=lambda item: not jobs.running[item[1][0]])
        elastic = []
        for code, own in order:
            smallest = int(jobs.devices[own[0]])
            largest = smallest + len(own) - 1
            speedup = jobs.speedups[code]
            current = int(jobs.running[own].sum()) if len(own) > 1 else 0
            elastic.append(ElasticJob(str(code), smallest, largest, partial(speed_on, speedup), current))
        found = allocate_widths(elastic, self.devices)
        return {int(name): width for name, width in found.items()}
