"""Pods until the cluster is full: the published table of Weng et al. (ATC 2023) on its own data."""

import numpy as np
import pytest

from cluster.core.errors import TraceError, UnknownPolicy
from cluster.core.placement.replay import RULES, draw_arrivals, replay
from cluster.core.traces.pods import NodeTable, PodTable, read_pod_nodes, read_pods

PUBLISHED = {
    "random": 87.47,
    "dotprod": 90.85,
    "gpu-clustering": 91.88,
    "gpu-packing": 92.00,
    "bestfit": 93.08,
    "fgd": 95.39,
}
SMALL_PODS = PodTable(
    *np.array([[1000, 2000, 500, 0], [10, 10, 10, 10], [1, 1, 2, 0], [1000, 400, 1000, 0]]),
    [frozenset(), frozenset({"T4"}), frozenset(), frozenset()],
)
SMALL_NODES = NodeTable(
    ["a", "b"], np.array([9000, 9000]), np.array([100, 100]), np.array([4, 2]), ["G2", "T4"]
)


@pytest.fixture(scope="module")
def openb(shared_dir):
    folder = shared_dir / "traces"
    return read_pods(folder / "alibaba_openb_pods.csv.gz"), read_pod_nodes(
        folder / "alibaba_openb_nodes.csv.gz"
    )


def test_the_published_table_is_matched_in_size_and_order(openb):
    found = {rule: 100 * replay(*openb, rule, seed=0).allocation["1.3"] for rule in PUBLISHED}
    for rule, published in PUBLISHED.items():
        assert abs(found[rule] - published) < (1.0 if rule in ("bestfit", "fgd") else 2.0), rule
    assert sorted(found, key=found.__getitem__) == sorted(PUBLISHED, key=PUBLISHED.__getitem__)


def test_arrivals_hold_every_pod_once_before_any_twice(openb):
    pods, nodes = openb
    capacity = int(nodes.devices.sum()) * 1000
    arrivals = draw_arrivals(pods, capacity, 1.3, np.random.default_rng(0))
    demand = (pods.devices * pods.milli)[arrivals]
    assert demand.sum() >= 1.3 * capacity > demand[:-1].sum()
    assert len(np.unique(arrivals)) > 0.9 * len(pods)


@pytest.mark.parametrize("rule", RULES)
def test_the_same_seed_gives_the_same_answer_and_nothing_is_given_twice(rule):
    first, second = (replay(SMALL_PODS, SMALL_NODES, rule, load=1.3, seed=3) for _ in range(2))
    assert (first.allocation, first.failed) == (second.allocation, second.failed)
    assert 0 < first.final_allocation <= 1.0
    assert list(first.allocation) == ["0.9", "1.0", "1.1", "1.3"]


def test_a_pod_goes_only_to_the_models_it_names():
    pods = PodTable(*np.array([[1], [1], [4], [1000]]), [frozenset({"T4"})])
    assert replay(pods, SMALL_NODES, "bestfit", load=1.0).final_allocation == 0.0


@pytest.mark.parametrize("load", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_load_that_makes_no_sense_is_refused(load):
    with pytest.raises(TraceError, match="load"):
        replay(SMALL_PODS, SMALL_NODES, "bestfit", load=load)


def test_an_unknown_rule_is_named_with_the_known_ones():
    with pytest.raises(UnknownPolicy, match=r"'x' is none of random"):
        replay(SMALL_PODS, SMALL_NODES, "x")
