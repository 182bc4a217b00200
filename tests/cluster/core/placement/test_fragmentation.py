"""The expected fragment against its definition, and the descent against a full search."""

import numpy as np

from cluster.core.placement.fragmentation import FragmentationDescent, expected_fragment, usual_mix
from cluster.core.placement.pods import PodCluster, pod_kinds
from cluster.core.placement.replay import build_rule
from cluster.core.traces.pods import NodeTable, PodTable


def pods(rows: list[tuple[int, int, int, int]]) -> PodTable:
    columns = np.array(rows, dtype=np.int64).T
    return PodTable(*columns, [frozenset()] * len(rows))


def nodes(rows: list[tuple[int, int, int]]) -> NodeTable:
    columns = np.array(rows, dtype=np.int64).T
    return NodeTable([str(n) for n in range(len(rows))], *columns, [""] * len(rows))


def fragment_by_hand(kinds, codes, cpu: int, memory: int, device: list[int]) -> float:
    total = 0.0
    for code in codes:
        kind = kinds[code]
        enough = sum(free >= kind.milli for free in device)
        if not kind.devices or cpu < kind.cpu_milli or memory < kind.memory_mib or enough < kind.devices:
            total += sum(device)
        else:
            total += sum(free for free in device if free < kind.milli)
    return total / len(codes)


def random_case(seed: int) -> tuple[PodTable, NodeTable, np.random.Generator]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(60):
        devices = int(rng.choice([0, 1, 1, 1, 2]))
        milli = 0 if not devices else int(rng.choice([250, 500, 700, 1000])) if devices == 1 else 1000
        rows.append((int(rng.integers(1, 5)) * 1000, int(rng.integers(1, 9)) * 100, devices, milli))
    return pods(rows), nodes([(8000, 2000, 2), (16000, 4000, 4), (6000, 9000, 0), (9000, 2000, 1)]), rng


def test_the_expected_fragment_is_its_definition():
    table, _, rng = random_case(0)
    kinds, codes = pod_kinds(table)
    mix = usual_mix(kinds, codes, coverage=1.0)
    for _ in range(50):
        cpu, memory = int(rng.integers(0, 9000)), int(rng.integers(0, 2000))
        device = rng.choice([0, 100, 300, 500, 700, 1000], size=4)
        found = expected_fragment(mix, np.array([cpu]), np.array([memory]), device[None, :])[0]
        assert abs(found - fragment_by_hand(kinds, codes, cpu, memory, device.tolist())) < 1e-9


def test_the_usual_types_are_the_commonest_that_cover_the_share():
    table = pods([(1, 1, 1, 1000)] * 90 + [(2, 1, 1, 1000)] * 6 + [(3, 1, 1, 1000)] * 4)
    mix = usual_mix(*pod_kinds(table))
    assert mix.cpu_milli.tolist() == [1, 2]


def test_what_was_kept_of_earlier_searches_changes_no_choice():
    for seed in range(4):
        table, cluster_nodes, _ = random_case(seed)
        kinds, codes = pod_kinds(table)
        cluster = PodCluster(cluster_nodes)
        rule = build_rule("fgd", cluster, (kinds, codes), np.random.default_rng(0))
        assert isinstance(rule, FragmentationDescent)
        for code in codes.tolist():
            afresh = build_rule("fgd", cluster, (kinds, codes), np.random.default_rng(0))
            choice = rule.choose(kinds[code])
            assert choice == afresh.choose(kinds[code])
            if choice is not None:
                cluster.take(kinds[code], *choice)
                rule.placed(kinds[code], *choice)
