"""Fragmentation gradient descent: place where the expected unusable device share grows least.

Weng et al., ATC 2023, section 4: the fragment of a node for a task type is what the type cannot use of
the node's free devices; its expectation over the types that usually come is what a placement raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.core.placement.pods import PodCluster, PodKind
from cluster.core.placement.scores import PlacementRule
from cluster.core.traces.pods import MILLI
from cluster.core.workload import FloatColumn, IntColumn

# Growths that differ by less than a few hundredths of a device say nothing (the mix is an estimate):
# there the fuller node wins, as in best fit, which keeps pods without devices off nodes with free ones.
LEFT_OVER_WEIGHT_MILLI = 30.0


@dataclass(frozen=True, slots=True)
class TaskMix:
    """T usual task types, how often each comes (shares sum to 1), and G distinct thresholds."""

    cpu_milli: IntColumn
    memory_mib: IntColumn
    devices: IntColumn
    share: FloatColumn
    threshold: IntColumn
    thresholds: IntColumn


def usual_mix(kinds: Sequence[PodKind], codes: IntColumn, coverage: float = 0.95) -> TaskMix:
    """Return the commonest requests that cover a share of the pods; equal counts by first use."""
    counts = np.bincount(codes, minlength=len(kinds))
    by_count = np.argsort(-counts, kind="stable")
    covered = np.cumsum(counts[by_count]) / max(len(codes), 1)
    usual = by_count[: int(np.searchsorted(covered, coverage - 1e-12)) + 1]
    milli = np.array([kinds[code].milli for code in usual], dtype=np.int64)
    thresholds, threshold = np.unique(milli, return_inverse=True)
    return TaskMix(
        cpu_milli=np.array([kinds[code].cpu_milli for code in usual], dtype=np.int64),
        memory_mib=np.array([kinds[code].memory_mib for code in usual], dtype=np.int64),
        devices=np.array([kinds[code].devices for code in usual], dtype=np.int64),
        share=counts[usual] / counts[usual].sum(),
        threshold=threshold.astype(np.int64),
        thresholds=thresholds.astype(np.int64),
    )


def expected_fragment(
    mix: TaskMix, cpu: IntColumn, memory: IntColumn, device: NDArray[np.int64]
) -> FloatColumn:
    """Return the expected unusable free thousandths of B node states (B,); `device` is (B, D).

    A type without devices cannot use any, nor can one that lacks CPU, memory or enough devices; any other
    cannot use the devices with less free than it needs of each.
    """
    enough = device[:, :, None] >= mix.thresholds  # (B, D, G)
    usable = np.einsum("bd,bdg->bg", device, enough, dtype=np.float64)
    count = enough.sum(axis=1)
    can = (mix.devices > 0) & (cpu[:, None] >= mix.cpu_milli) & (memory[:, None] >= mix.memory_mib)
    can &= count[:, mix.threshold] >= mix.devices
    return device.sum(axis=1) - (can * usable[:, mix.threshold]) @ mix.share


class FragmentationDescent(PlacementRule):
    """The node and device whose expected fragment grows least, near ties by the least left over.

    The growth for a (request, node) pair is kept until the node changes, so that one arrival looks at the
    nodes that changed since its request was last seen and at no others.
    """

    def __init__(self, cluster: PodCluster, rng: np.random.Generator, mix: TaskMix, kinds: int) -> None:
        super().__init__(cluster, rng)
        self.mix = mix
        count = len(cluster.cpu)
        self._clock = 1
        self._changed_at = np.ones(count, dtype=np.int64)
        self._seen_at = np.zeros(kinds, dtype=np.int64)
        self._growth = np.full((kinds, count), np.inf)
        self._device = np.zeros((kinds, count), dtype=np.int64)
        self._fragment = self._fragment_of(np.arange(count))

    def choose(self, kind: PodKind) -> tuple[int, list[int]] | None:
        number = kind.number
        stale = np.flatnonzero(self._changed_at > self._seen_at[number])
        if len(stale):
            self._refresh(kind, stale)
            self._seen_at[number] = self._clock
        node = int(np.argmin(self._growth[number]))
        if self._growth[number, node] == np.inf:
            return None
        if 0 < kind.milli < MILLI:
            return node, [int(self._device[number, node])]
        return node, self.cluster.devices_for(kind, node)

    def placed(self, kind: PodKind, node: int, devices: list[int]) -> None:
        self._clock += 1
        self._changed_at[node] = self._clock
        self._fragment[node] = self._fragment_of(np.array([node]))[0]

    def _fragment_of(self, nodes: IntColumn) -> FloatColumn:
        cluster = self.cluster
        return expected_fragment(self.mix, cluster.cpu[nodes], cluster.memory[nodes], cluster.device[nodes])

    def _refresh(self, kind: PodKind, nodes: IntColumn) -> None:
        number, cluster = kind.number, self.cluster
        self._growth[number, nodes] = np.inf
        nodes = nodes[cluster.fits(kind)[nodes]]
        where, device = self._options(kind, nodes)
        if not len(where):
            return
        chosen = nodes[where]
        after = expected_fragment(
            self.mix,
            cluster.cpu[chosen] - kind.cpu_milli,
            cluster.memory[chosen] - kind.memory_mib,
            device[0],
        )
        growth = after - self._fragment[chosen] + LEFT_OVER_WEIGHT_MILLI * self.left_over(kind, chosen)
        # Options stand grouped by node; the first smallest of each group wins.
        order = np.lexsort((growth, where))
        first = order[np.r_[True, where[order][1:] != where[order][:-1]]]
        self._growth[number, chosen[first]] = growth[first]
        self._device[number, chosen[first]] = device[1][first]

    def _options(
        self, kind: PodKind, nodes: IntColumn
    ) -> tuple[IntColumn, tuple[NDArray[np.int64], IntColumn]]:
        """Return for B options which node each is about (B,), its devices after (B, D), the device (B,)."""
        free = self.cluster.device[nodes]
        where = np.arange(len(nodes))
        if not kind.devices:
            return where, (free, np.zeros(len(nodes), dtype=np.int64))
        if kind.milli == MILLI:
            whole = free == MILLI
            taken = whole & (np.cumsum(whole, axis=1) <= kind.devices)
            return where, (np.where(taken, 0, free), np.zeros(len(nodes), dtype=np.int64))
        # Of devices with equally much free, the first stands for all.
        repeated = np.tril(free[:, :, None] == free[:, None, :], k=-1).any(axis=2)
        where, slot = np.nonzero((free >= kind.milli) & ~repeated)
        after = free[where]
        after[np.arange(len(where)), slot] -= kind.milli
        return where, (after, slot)


def gang_rooms(free_by_node: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return for gangs of 1, 2, 4, ... devices (size, how many fit inside single nodes, by count alone).

    The difference between the two is fragmentation: devices that are free, but not together. Sizes go up to
    the largest number that is free in one node, and one beyond where the count alone would allow it.
    """
    total, largest = sum(free_by_node), max(free_by_node, default=0)
    rooms: list[tuple[int, int, int]] = []
    size = 1
    while size <= max(1, largest) or (size <= total and size <= 2 * largest):
        rooms.append((size, sum(free // size for free in free_by_node), total // size))
        size *= 2
    return rooms
