"""How long collectives take: the alpha-beta model with the bus-bandwidth factors of nccl-tests, in seconds.

Size conventions: all-reduce the tensor, all-gather the gathered output, reduce-scatter the full input,
all-to-all the whole local buffer, point-to-point the message.
"""

import math
from collections.abc import Callable

from jobs.core.overlap.clusters import Cluster


def all_reduce_s(ranks: int, size_bytes: float, step_s: float, bytes_per_s: float) -> float:
    """The faster of ring and pipelined tree."""
    if ranks <= 1:
        return 0.0
    ring = 2 * (ranks - 1) * step_s + 2 * (ranks - 1) / ranks * size_bytes / bytes_per_s
    tree = 2 * math.log2(ranks) * step_s + 2 * size_bytes / bytes_per_s
    return min(ring, tree)


def all_gather_s(ranks: int, size_bytes: float, step_s: float, bytes_per_s: float) -> float:
    """Ring; recursive doubling needs fewer steps for the same bytes where the ranks are a power of two."""
    if ranks <= 1:
        return 0.0
    steps = math.log2(ranks) if ranks & (ranks - 1) == 0 else ranks - 1
    return steps * step_s + (ranks - 1) / ranks * size_bytes / bytes_per_s


def all_to_all_s(ranks: int, size_bytes: float, step_s: float, bytes_per_s: float) -> float:
    """Every rank sends a part to every other one."""
    return (ranks - 1) * step_s + (ranks - 1) / ranks * size_bytes / bytes_per_s if ranks > 1 else 0.0


def point_to_point_s(size_bytes: float, step_s: float, bytes_per_s: float) -> float:
    """One message: a hop of ring attention."""
    return step_s + size_bytes / bytes_per_s


_FLAT: dict[str, Callable[[int, float, float, float], float]] = {
    "all_reduce": all_reduce_s,
    "all_gather": all_gather_s,
    "reduce_scatter": all_gather_s,
    "all_to_all": all_to_all_s,
}


def collective_s(cluster: Cluster, operation: str, ranks: int, size_bytes: float) -> float:
    """A collective over consecutive ranks: inside a node, or hierarchical over whole nodes.

    Args:
        operation: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all` or `point_to_point`; any other
            one is taken for an all-reduce, the dearest.
    """
    inside = min(ranks, cluster.devices_per_node)
    nodes = math.ceil(ranks / cluster.devices_per_node)
    return _placed_s(cluster, operation, inside, nodes, ranks, size_bytes)


def group_collective_s(cluster: Cluster, operation: str, ranks: tuple[int, ...], size_bytes: float) -> float:
    """A collective of the ranks named; each node holds `devices_per_node` consecutive ones."""
    counts: dict[int, int] = {}
    for rank in ranks:
        node = rank // cluster.devices_per_node
        counts[node] = counts.get(node, 0) + 1
    inside = max(counts.values(), default=1)
    return _placed_s(cluster, operation, inside, len(counts), len(ranks), size_bytes)


def _placed_s(
    cluster: Cluster, operation: str, inside: int, nodes: int, ranks: int, size_bytes: float
) -> float:
    node = (cluster.node_step_s, cluster.node_bytes_per_s)
    network = (cluster.network_step_s, cluster.network_bytes_per_s)
    if operation == "point_to_point":
        return point_to_point_s(size_bytes, *(node if nodes <= 1 else network))
    flat = _FLAT.get(operation, all_reduce_s)
    if nodes <= 1:
        return flat(ranks, size_bytes, *node)
    if operation == "all_to_all":
        leaving = size_bytes * (ranks - inside) / ranks
        return (ranks - 1) * network[0] + max(leaving / network[1], size_bytes * inside / ranks / node[1])
    if operation in ("all_gather", "reduce_scatter"):
        return flat(nodes, size_bytes / inside, *network) + flat(inside, size_bytes, *node)
    in_node = 2 * all_gather_s(inside, size_bytes, *node)
    return in_node + all_reduce_s(nodes, size_bytes / inside, *network)
