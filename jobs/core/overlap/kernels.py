"""How long compute kernels take on a cluster's device: analytic, in seconds."""

import math

from jobs.core.overlap.clusters import Cluster

_TILE_ROWS, _TILE_COLUMNS = 128, 256


def wave_factor(rows: int, columns: int, multiprocessors: int) -> float:
    """The share of the device that a GEMM keeps busy: waves needed over waves paid for.

    Below one wave half the rows take as long as all of them, so splitting a small GEMM only loses.
    """
    blocks = math.ceil(rows / _TILE_ROWS) * math.ceil(columns / _TILE_COLUMNS)
    return blocks / multiprocessors / math.ceil(blocks / multiprocessors) if blocks else 1.0


def gemm_s(cluster: Cluster, rows: int, columns: int, inner: int, item_bytes: int = 2) -> float:
    """Launch plus the slower of arithmetic (with the wave effect) and memory traffic."""
    if rows == 0 or columns == 0:
        return cluster.launch_s
    factor = cluster.gemm_efficiency * wave_factor(rows, columns, cluster.multiprocessors)
    arithmetic = 2.0 * rows * columns * inner / (cluster.flops_per_s * factor)
    moved = item_bytes * (rows * inner + inner * columns + rows * columns)
    return cluster.launch_s + max(
        arithmetic, moved / (cluster.memory_bytes_per_s * cluster.memory_efficiency)
    )


def memory_bound_s(cluster: Cluster, moved_bytes: float) -> float:
    """Norms, softmax, pointwise functions: launch plus the bytes read and written."""
    return cluster.launch_s + moved_bytes / (cluster.memory_bytes_per_s * cluster.memory_efficiency)


def attention_s(
    cluster: Cluster, batch: int, heads: int, tokens: int, head_size: int, *, causal: bool = True
) -> float:
    """Forward of fused attention; the backward takes about 2.5 times as long."""
    operations = 4.0 * batch * heads * tokens * tokens * head_size * (0.5 if causal else 1.0)
    return cluster.launch_s + operations / (cluster.flops_per_s * cluster.attention_efficiency)
