"""Pods on nodes with CPU, memory and devices that can be shared in thousandths: the state and who fits."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.core.errors import CapacityError
from cluster.core.traces.pods import MILLI, NodeTable, PodTable
from cluster.core.workload import BoolColumn, IntColumn


@dataclass(frozen=True, slots=True)
class PodKind:
    """One distinct request; pods with the same request share it."""

    number: int
    cpu_milli: int
    memory_mib: int
    devices: int
    milli: int
    models: frozenset[str]


def pod_kinds(pods: PodTable) -> tuple[list[PodKind], IntColumn]:
    """Return the distinct requests in order of first use, and each pod's (P,)."""
    known: dict[tuple[int, int, int, int, frozenset[str]], int] = {}
    columns = (pods.cpu_milli, pods.memory_mib, pods.devices, pods.milli)
    keys = zip(*(column.tolist() for column in columns), pods.models, strict=True)
    codes = np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)
    return [PodKind(number, *key) for key, number in known.items()], codes


class PodCluster:
    """What is free on N nodes with at most D devices each; absent devices have nothing free.

    Attributes:
        cpu, memory: free (N,).
        device: free thousandths of each device (N, D).
        whole: untouched devices (N,).
        most: the most free thousandths of a single device (N,).
    """

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        width = int(nodes.devices.max(initial=1))
        self.cpu = nodes.cpu_milli.copy()
        self.memory = nodes.memory_mib.copy()
        self.device: NDArray[np.int64] = np.where(np.arange(width) < nodes.devices[:, None], MILLI, 0)
        self.whole = nodes.devices.copy()
        self.most = self.device.max(axis=1)
        self.free_milli = self.device.sum(axis=1)
        self.capacity_milli = int(self.free_milli.sum())
        self._models = np.array(nodes.models)

    def fits(self, kind: PodKind) -> BoolColumn:
        """Return which nodes have room for a pod (N,)."""
        room = (self.cpu >= kind.cpu_milli) & (self.memory >= kind.memory_mib)
        if kind.devices:
            room &= (self.whole >= kind.devices) if kind.milli == MILLI else (self.most >= kind.milli)
        if kind.models:
            room &= np.isin(self._models, list(kind.models))
        return room

    def devices_for(self, kind: PodKind, node: int) -> list[int]:
        """Return the devices a pod takes: whole ones in order, or the fullest that has room."""
        if not kind.devices:
            return []
        free = self.device[node]
        if kind.milli == MILLI:
            return np.flatnonzero(free == MILLI)[: kind.devices].tolist()
        return [int(np.argmin(np.where(free >= kind.milli, free, MILLI + 1)))]

    def take(self, kind: PodKind, node: int, devices: list[int]) -> None:
        """Place a pod; CapacityError where any resource would be given twice."""
        self.cpu[node] -= kind.cpu_milli
        self.memory[node] -= kind.memory_mib
        for device in devices:
            self.device[node, device] -= kind.milli
        free = self.device[node]
        if len(devices) != kind.devices or self.cpu[node] < 0 or self.memory[node] < 0 or free.min() < 0:
            raise CapacityError(f"node {self.nodes.names[node]} was given more than it has")
        self.whole[node] = np.count_nonzero(free == MILLI)
        self.most[node] = free.max()
        self.free_milli[node] -= kind.milli * kind.devices

    def allocated_milli(self) -> int:
        """Return the thousandths of devices in use."""
        return self.capacity_milli - int(self.free_milli.sum())
