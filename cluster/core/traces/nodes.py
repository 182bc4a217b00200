"""Nodes of a simulated cluster: even ones by count, or a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.core.errors import TraceError
from cluster.core.traces.columns import cell, column_index, open_rows, read_count

LARGEST_CLUSTER_NODES = 200_000


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node with whole devices of one kind (empty: unnamed)."""

    name: str
    devices: int
    kind: str = ""


def even_nodes(devices: int, per_node: int = 8) -> list[NodeSpec]:
    """Return nodes of `per_node` devices, the last one smaller where it does not divide.

    Raises:
        TraceError: fewer than one device or more than 200,000 nodes.
    """
    if devices < 1:
        raise TraceError("gpus", "at least 1 is needed")
    if per_node < 1:
        raise TraceError("gpus-per-node", "at least 1 is needed")
    full, rest = divmod(devices, per_node)
    if full + (rest > 0) > LARGEST_CLUSTER_NODES:
        raise TraceError("gpus", f"more than {LARGEST_CLUSTER_NODES} nodes")
    sizes = [per_node] * full + ([rest] if rest else [])
    return [NodeSpec(f"n{number}", size) for number, size in enumerate(sizes)]


def read_nodes(path: Path) -> list[NodeSpec]:
    """Read a file with the columns `node, gpus` and, where present, `type`; its order numbers the nodes.

    Raises:
        TraceError: a column is missing, a name occurs twice, a cell is wrong, or there is no device.
    """
    header, rows = open_rows(path)
    at_name, at_devices = column_index(header, "node"), column_index(header, "gpus")
    at_kind = column_index(header, "type", required=False)
    nodes: list[NodeSpec] = []
    seen: set[str] = set()
    for number, row in enumerate(rows, start=1):
        name = cell(row, at_name)
        if not name or name in seen:
            raise TraceError("node", "a value is needed" if not name else f"{name!r} occurs twice", number)
        seen.add(name)
        devices = read_count(cell(row, at_devices), "gpus", number)
        nodes.append(NodeSpec(name, devices, cell(row, at_kind)))
    check_nodes(nodes)
    return nodes


def check_nodes(nodes: Sequence[NodeSpec]) -> None:
    """Raise TraceError for a cluster without devices or with more nodes than 200,000."""
    if sum(node.devices for node in nodes) == 0:
        raise TraceError("gpus", "the cluster has no devices")
    if len(nodes) > LARGEST_CLUSTER_NODES:
        raise TraceError("node", f"more than {LARGEST_CLUSTER_NODES} nodes")
