"""Sharing devices between two jobs that do not hurt each other (Lucid: Hu et al., ASPLOS 2023, section 3).

Jobs go shortest first (believed run time times devices), never stopped. A job joins a running one on the
same devices only if both ask equally many, the devices are not shared yet, the joining one is not much
longer, and both keep enough of their speed. Lucid predicts the last point from a sharing score of each
job; here measured speeds of pairs stand in its place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.core.policies.interface import Blocking, Policy
from cluster.core.workload import IntColumn, JobTable

MOST_SHARED_DEVICES = 8
LONGEST_GUEST = 2.0
# Together both must do clearly more than one of them alone, and neither may crawl.
LEAST_SUM, LEAST_EACH = 1.2, 0.4

PairSpeeds = Callable[[int, int], tuple[float, float]]  # two rows -> what each keeps of its own speed


@dataclass(frozen=True, slots=True)
class Host:
    """A running job that could share its devices."""

    row: int
    devices: int
    priority: float


class Packing(Policy):
    """Shortest first by believed time and devices, nobody is stopped; who finds no room may share."""

    name = "lucid"
    title = "Shortest first, two jobs on the same devices where both stay fast (Lucid)"
    blocking = Blocking.SKIP
    shares = True

    def order(self, jobs: JobTable, rows: IntColumn, now: float) -> IntColumn:
        return rows[np.argsort(jobs.remaining_s[rows] * jobs.devices[rows], kind="stable")]


def sharing_priority(remaining_s: float, devices: int) -> float:
    """Return a job's place in the order: smallest first."""
    return remaining_s * devices


def pick_host(
    row: int, devices: int, priority: float, hosts: Sequence[Host], speeds: PairSpeeds
) -> Host | None:
    """Return the running job whose devices a job should share, or None.

    Among the hosts allowed, the one with which both together do most.
    """
    best: tuple[float, int, Host] | None = None
    for host in hosts:
        if (
            host.devices != devices
            or devices > MOST_SHARED_DEVICES
            or priority > LONGEST_GUEST * host.priority
        ):
            continue
        guest_keeps, host_keeps = speeds(row, host.row)
        if min(guest_keeps, host_keeps) < LEAST_EACH or guest_keeps + host_keeps < LEAST_SUM:
            continue
        score = (-(guest_keeps + host_keeps), host.row, host)
        if best is None or score[:2] < best[:2]:
            best = score
    return best[2] if best else None
