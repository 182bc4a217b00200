"""Cost models: limits that must hold for any cluster, and values by hand."""

import pytest

from jobs.core.overlap.clusters import A100_HDR, CLUSTERS
from jobs.core.overlap.collectives import all_gather_s, all_reduce_s, all_to_all_s, collective_s
from jobs.core.overlap.kernels import attention_s, gemm_s, memory_bound_s, wave_factor

OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point"]


def test_half_a_wave_takes_as_long_as_a_whole_one() -> None:
    assert wave_factor(128, 256 * 54, 108) == 0.5
    assert wave_factor(128, 256 * 108, 108) == 1.0
    assert wave_factor(128, 256 * 109, 108) == pytest.approx(109 / 216)
    whole, half = (gemm_s(A100_HDR, rows, 4096, 8192) for rows in (512, 256))
    assert half == pytest.approx(whole)


def test_a_large_gemm_runs_at_the_efficiency_of_the_profile() -> None:
    rows, columns, inner = 128 * 108, 256 * 10, 8192
    ideal = 2 * rows * columns * inner / (312e12 * 0.7)
    assert gemm_s(A100_HDR, rows, columns, inner) == pytest.approx(ideal + 3e-6)


def test_a_thin_gemm_is_bound_by_memory() -> None:
    moved = 2 * (1 * 8192 + 8192 * 8192 + 8192)
    assert gemm_s(A100_HDR, 1, 8192, 8192) == pytest.approx(3e-6 + moved / (2.04e12 * 0.85), rel=0.5)
    assert memory_bound_s(A100_HDR, 2.04e12 * 0.85) == pytest.approx(1.0 + 3e-6)


def test_causal_attention_costs_half() -> None:
    full, causal = (attention_s(A100_HDR, 4, 16, 4096, 128, causal=flag) for flag in (False, True))
    assert full - A100_HDR.launch_s == pytest.approx(2 * (causal - A100_HDR.launch_s))


def test_ring_formulas_by_hand() -> None:
    assert all_reduce_s(4, 1000.0, 0.0, 1.0) == 1500.0
    assert all_gather_s(4, 1000.0, 0.0, 1.0) == 750.0
    assert all_to_all_s(4, 1000.0, 1.0, 1.0) == 753.0
    assert all_reduce_s(8, 0.0, 1.0, 1.0) == 6.0  # the tree wins where only latency counts
    assert all_gather_s(6, 0.0, 1.0, 1.0) == 5.0


@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
@pytest.mark.parametrize("operation", [*OPERATIONS, "unheard_of"])
def test_collectives_grow_with_size_and_are_slower_between_nodes(cluster, operation) -> None:
    sizes = [collective_s(cluster, operation, 8, size) for size in (0.0, 1e6, 1e9)]
    assert 0.0 < sizes[0] < sizes[1] < sizes[2]
    assert collective_s(cluster, operation, 16, 1e8) > collective_s(cluster, operation, 8, 1e8)


def test_one_rank_has_nothing_to_say() -> None:
    assert [collective_s(A100_HDR, operation, 1, 1e9) for operation in OPERATIONS[:4]] == [0.0] * 4


def test_hierarchical_all_reduce_is_scatter_reduce_gather() -> None:
    size = 64 * 2**20
    expected = 2 * all_gather_s(8, size, 3.4e-6, 240e9) + all_reduce_s(2, size / 8, 14e-6, 25e9)
    assert collective_s(A100_HDR, "all_reduce", 16, size) == expected
