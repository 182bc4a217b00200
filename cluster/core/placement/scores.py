"""Rules that score the nodes a pod fits on and take the best: random, best fit, dot product, packing,
clustering.

The rules are those compared by Weng et al. (ATC 2023, section 6), written from their descriptions.
"""

import numpy as np

from cluster.core.placement.pods import PodCluster, PodKind
from cluster.core.traces.pods import MILLI
from cluster.core.workload import FloatColumn, IntColumn


class PlacementRule:
    """Chooses a node and devices for one pod after another on one cluster."""

    def __init__(self, cluster: PodCluster, rng: np.random.Generator) -> None:
        self.cluster = cluster
        self.rng = rng
        nodes = cluster.nodes
        self.scale = np.array(
            [
                max(int(column.max()), 1)
                for column in (nodes.cpu_milli, nodes.memory_mib, nodes.devices * MILLI)
            ],
            dtype=np.float64,
        )

    def choose(self, kind: PodKind) -> tuple[int, list[int]] | None:
        """Return (node, devices) for a pod, or None where it fits nowhere."""
        fitting = np.flatnonzero(self.cluster.fits(kind))
        if not len(fitting):
            return None
        node = int(fitting[np.argmin(self.cost(kind, fitting))])
        return node, self.cluster.devices_for(kind, node)

    def cost(self, kind: PodKind, nodes: IntColumn) -> FloatColumn:
        """Return the cost of a pod on each of M nodes (M,); the lowest wins, the first among equals."""
        raise NotImplementedError

    def placed(self, kind: PodKind, node: int, devices: list[int]) -> None:
        """Note a placement that was made."""

    def left_over(self, kind: PodKind, nodes: IntColumn) -> FloatColumn:
        """Return the sum of CPU, memory and devices left over, as shares of the largest node (M,)."""
        cluster, (cpu, memory, milli) = self.cluster, self.scale
        left = cluster.cpu[nodes] / cpu + cluster.memory[nodes] / memory + cluster.free_milli[nodes] / milli
        asked = kind.cpu_milli / cpu + kind.memory_mib / memory + kind.devices * kind.milli / milli
        return left - asked


class RandomNode(PlacementRule):
    """Any node that fits and any of its devices with room, with equal chance."""

    def choose(self, kind: PodKind) -> tuple[int, list[int]] | None:
        fitting = np.flatnonzero(self.cluster.fits(kind))
        if not len(fitting):
            return None
        node = int(self.rng.choice(fitting))
        devices = np.flatnonzero(self.cluster.device[node] >= max(kind.milli, 1))
        return node, self.rng.permutation(devices)[: kind.devices].tolist()


class BestFit(PlacementRule):
    """The node with the least left over, summed over the resources."""

    def cost(self, kind: PodKind, nodes: IntColumn) -> FloatColumn:
        return self.left_over(kind, nodes)


class DotProduct(PlacementRule):
    """The smallest dot product of what is free and what is asked, as shares of the node."""

    def cost(self, kind: PodKind, nodes: IntColumn) -> FloatColumn:
        cluster, table = self.cluster, self.cluster.nodes
        return (
            cluster.cpu[nodes] / np.square(np.maximum(table.cpu_milli[nodes], 1.0)) * kind.cpu_milli
            + cluster.memory[nodes] / np.square(np.maximum(table.memory_mib[nodes], 1.0)) * kind.memory_mib
            + cluster.free_milli[nodes]
            / np.square(np.maximum(table.devices[nodes] * float(MILLI), 1.0))
            * (kind.devices * kind.milli)
        )


class Packing(PlacementRule):
    """A used device with room first, the fullest such; then free devices of a used node; then the smallest
    idle node.

    Equals by the least CPU and memory left over; pods without devices by the least free CPU.
    """

    def cost(self, kind: PodKind, nodes: IntColumn) -> FloatColumn:
        cluster = self.cluster
        if not kind.devices:
            return cluster.cpu[nodes].astype(np.float64)
        size = cluster.nodes.devices[nodes]
        step = np.where(cluster.whole[nodes] == size, 3000.0 + 10.0 * size, 2000.0)
        if kind.milli < MILLI:
            device = cluster.device[nodes]
            used = np.where((device >= kind.milli) & (device < MILLI), device, MILLI).min(axis=1)
            step = np.where(used < MILLI, 1000.0 + used // 100 * 10.0, step)
        return step + (cluster.cpu[nodes] / self.scale[0] + cluster.memory[nodes] / self.scale[1])


class Clustering(PlacementRule):
    """A node that already runs pods with the same kind of device request first, then the least left over.

    The kinds are: a share of one device, one whole device, two, and so on; pods without devices go by the
    least free CPU.
    """

    def __init__(self, cluster: PodCluster, rng: np.random.Generator) -> None:
        super().__init__(cluster, rng)
        self._hosted: dict[tuple[int, bool], IntColumn] = {}

    def cost(self, kind: PodKind, nodes: IntColumn) -> FloatColumn:
        if not kind.devices:
            return self.cluster.cpu[nodes].astype(np.float64)
        return np.where(self._hosted_by(kind)[nodes] > 0, 0.0, 10.0) + self.left_over(kind, nodes)

    def placed(self, kind: PodKind, node: int, devices: list[int]) -> None:
        if kind.devices:
            self._hosted_by(kind)[node] += 1

    def _hosted_by(self, kind: PodKind) -> IntColumn:
        key = (kind.devices, kind.milli < MILLI)
        if key not in self._hosted:
            self._hosted[key] = np.zeros(len(self.cluster.cpu), dtype=np.int64)
        return self._hosted[key]
