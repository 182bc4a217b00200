"""Pods arriving one after another until a load: how much of the devices each placement rule can hand out."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.core.errors import TraceError, UnknownPolicy
from cluster.core.placement.fragmentation import FragmentationDescent, expected_fragment, usual_mix
from cluster.core.placement.pods import PodCluster, PodKind, pod_kinds
from cluster.core.placement.scores import BestFit, Clustering, DotProduct, Packing, PlacementRule, RandomNode
from cluster.core.traces.pods import NodeTable, PodTable
from cluster.core.workload import IntColumn

MARKS = (0.9, 1.0, 1.1, 1.3)
LARGEST_LOAD = 20.0
SIMPLE_RULES: dict[str, type[PlacementRule]] = {
    "random": RandomNode,
    "bestfit": BestFit,
    "dotprod": DotProduct,
    "gpu-packing": Packing,
    "gpu-clustering": Clustering,
}
RULES = (*SIMPLE_RULES, "fgd")


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Shares of the device capacity handed out, at the marks of arrived load up to the asked one.

    Attributes:
        fragment_share: expected unusable share of the free devices at the end (section 4 of the paper).
    """

    allocation: dict[str, float]
    final_allocation: float
    arrived: int
    failed: int
    fragment_share: float
    wall_s: float

    def figures(self) -> dict[str, Any]:
        """Return the figures of `forebay place`."""
        return {
            "allocation": self.allocation,
            "failed": self.failed,
            "wall_s": self.wall_s,
            "final_allocation": self.final_allocation,
            "arrived": self.arrived,
            "fragment_share": self.fragment_share,
        }


def draw_arrivals(pods: PodTable, capacity_milli: int, load: float, rng: np.random.Generator) -> IntColumn:
    """Return pod rows: every pod once and draws with replacement up to a load, shuffled, cut at the load.

    Raises:
        TraceError: the load is not a positive number up to 20, or no pod asks for a device.
    """
    if not 0 < load <= LARGEST_LOAD:
        raise TraceError("load", f"{load} is not within 0 and {LARGEST_LOAD:g}")
    demand = pods.devices * pods.milli
    total, target = int(demand.sum()), load * capacity_milli
    if not total:
        raise TraceError("num_gpu", "no pod asks for a device")
    rows = [np.arange(len(pods))]
    missing = target - total
    while missing > 0:
        draws = rng.integers(len(pods), size=len(pods))
        enough = int(np.searchsorted(np.cumsum(demand[draws]), missing)) + 1
        rows.append(draws[:enough])
        missing -= int(demand[draws[:enough]].sum())
    arrivals = rng.permutation(np.concatenate(rows))
    arrived = np.cumsum(demand[arrivals])
    return arrivals[: int(np.searchsorted(arrived, target)) + 1]


def build_rule(
    name: str, cluster: PodCluster, pods: tuple[list[PodKind], IntColumn], rng: np.random.Generator
) -> PlacementRule:
    """Return a placement rule by name; UnknownPolicy where there is none."""
    if name == "fgd":
        return FragmentationDescent(cluster, rng, usual_mix(*pods), len(pods[0]))
    if name not in SIMPLE_RULES:
        raise UnknownPolicy(name, list(RULES))
    return SIMPLE_RULES[name](cluster, rng)


def replay(
    pods: PodTable, nodes: NodeTable, rule_name: str, *, load: float = 1.3, seed: int = 0
) -> ReplayResult:
    """Place pods until the load has arrived; a pod that does not fit is dropped.

    The arrivals depend on the seed alone, so that rules can be compared on the same ones.
    """
    began = time.perf_counter()
    cluster = PodCluster(nodes)
    arrivals = draw_arrivals(pods, cluster.capacity_milli, load, np.random.default_rng(seed))
    kinds, codes = pod_kinds(pods)
    rule = build_rule(rule_name, cluster, (kinds, codes), np.random.default_rng([seed, 1]))
    sequence = codes[arrivals]
    arrived = np.cumsum((pods.devices * pods.milli)[arrivals]) / cluster.capacity_milli
    stops: dict[int, list[str]] = {}
    for mark in MARKS:
        if mark <= load + 1e-12:
            stops.setdefault(min(int(np.searchsorted(arrived, mark)), len(sequence) - 1), []).append(
                str(mark)
            )
    allocation: dict[str, float] = {}
    failed = 0
    for position, code in enumerate(sequence.tolist()):
        choice = rule.choose(kinds[code])
        if choice is None:
            failed += 1
        else:
            cluster.take(kinds[code], *choice)
            rule.placed(kinds[code], *choice)
        for mark_name in stops.get(position, ()):
            allocation[mark_name] = cluster.allocated_milli() / cluster.capacity_milli
    share = _fragment_share(cluster, kinds, codes)
    final = cluster.allocated_milli() / cluster.capacity_milli
    return ReplayResult(allocation, final, len(sequence), failed, share, time.perf_counter() - began)


def _fragment_share(cluster: PodCluster, kinds: list[PodKind], codes: IntColumn) -> float:
    free = cluster.capacity_milli - cluster.allocated_milli()
    unusable = expected_fragment(usual_mix(kinds, codes), cluster.cpu, cluster.memory, cluster.device).sum()
    return float(unusable) / free if free else 0.0
