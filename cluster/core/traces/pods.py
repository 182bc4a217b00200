"""Pods and nodes with several resources: the columns of Alibaba's openb trace (Weng et al., ATC 2023)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cluster.core.errors import TraceError
from cluster.core.traces.columns import cell, column_index, open_rows, read_count
from cluster.core.traces.nodes import LARGEST_CLUSTER_NODES
from cluster.core.workload import IntColumn

MILLI = 1000  # thousandths of one device
MOST_DEVICES_PER_NODE = 64


@dataclass(frozen=True, slots=True)
class PodTable:
    """P pods: what each asks for.

    Attributes:
        cpu_milli, memory_mib, devices: of the whole pod.
        milli: of each device; 1000 is a whole one, only one device can be shared.
        models: device models a pod is restricted to, empty for any.
    """

    cpu_milli: IntColumn
    memory_mib: IntColumn
    devices: IntColumn
    milli: IntColumn
    models: list[frozenset[str]]

    def __len__(self) -> int:
        return len(self.models)


@dataclass(frozen=True, slots=True)
class NodeTable:
    """N nodes: what each has."""

    names: list[str]
    cpu_milli: IntColumn
    memory_mib: IntColumn
    devices: IntColumn
    models: list[str]


def read_pods(path: Path) -> PodTable:
    """Read `cpu_milli, memory_mib, num_gpu, gpu_milli` and, where present, `gpu_spec` (models joined by `|`).

    Raises:
        TraceError: a column is missing, there are no pods, or a cell is wrong.
    """
    header, rows = open_rows(path)
    at = [column_index(header, name) for name in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")]
    at_spec = column_index(header, "gpu_spec", required=False)
    if not rows:
        raise TraceError("pods", "there are no pods in the file")
    table = np.array([_pod(row, number, at) for number, row in enumerate(rows, start=1)], dtype=np.int64)
    models = [frozenset(filter(None, cell(row, at_spec).split("|"))) for row in rows]
    return PodTable(table[:, 0], table[:, 1], table[:, 2], table[:, 3], models)


def _pod(row: list[str], number: int, at: list[int]) -> tuple[int, int, int, int]:
    cpu = read_count(cell(row, at[0]), "cpu_milli", number)
    memory = read_count(cell(row, at[1]), "memory_mib", number)
    devices = read_count(cell(row, at[2]), "num_gpu", number)
    milli = read_count(cell(row, at[3]), "gpu_milli", number)
    if not devices:
        return cpu, memory, 0, 0
    if not 1 <= milli <= MILLI:
        raise TraceError("gpu_milli", f"{milli} is not within 1 and {MILLI} of each device", number)
    if devices > 1 and milli != MILLI:
        raise TraceError(
            "gpu_milli", f"{devices} devices are taken whole, so {MILLI} is needed, not {milli}", number
        )
    return cpu, memory, devices, milli


def read_pod_nodes(path: Path) -> NodeTable:
    """Read `sn, cpu_milli, memory_mib, gpu` and, where present, `model`.

    Raises:
        TraceError: a column is missing, a name occurs twice, a cell is wrong, or there is no device.
    """
    header, rows = open_rows(path)
    at = [column_index(header, name) for name in ("sn", "cpu_milli", "memory_mib", "gpu")]
    at_model = column_index(header, "model", required=False)
    names: dict[str, None] = {}
    numbers = []
    for number, row in enumerate(rows, start=1):
        name = cell(row, at[0])
        if not name or name in names:
            raise TraceError("sn", "a value is needed" if not name else f"{name!r} occurs twice", number)
        names[name] = None
        numbers.append([read_count(cell(row, index), header[index], number) for index in at[1:]])
        if numbers[-1][2] > MOST_DEVICES_PER_NODE:
            raise TraceError("gpu", f"more than {MOST_DEVICES_PER_NODE} on one node", number)
    table = np.array(numbers, dtype=np.int64).reshape(-1, 3)
    if len(rows) > LARGEST_CLUSTER_NODES:
        raise TraceError("sn", f"more than {LARGEST_CLUSTER_NODES} nodes")
    if not table[:, 2].sum():
        raise TraceError("gpu", "the nodes have no device")
    return NodeTable(
        list(names), table[:, 0], table[:, 1], table[:, 2], [cell(row, at_model) for row in rows]
    )
