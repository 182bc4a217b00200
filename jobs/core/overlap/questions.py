"""What-if questions about a captured program: other tiles, budget, bandwidth, cluster, slowdown, policy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.core.overlap.assembly import WorkGraph
from jobs.core.overlap.bounds import bounds
from jobs.core.overlap.clusters import Cluster, read_cluster
from jobs.core.overlap.documents import plan_document
from jobs.core.overlap.errors import OverBudget
from jobs.core.overlap.graph import Graph, given_order
from jobs.core.overlap.planner import POLICIES, Candidate, Plan, make_plan
from jobs.core.overlap.simulator import Timeline, simulate

BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
SLOWDOWNS = (0.0, 0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True)
class Question:
    """What to assume.

    Attributes:
        tiles: one of the numbers that were captured.
        bandwidth: factor on the bandwidth of all links.
        slowdown: for compute and communication alike.
    """

    tiles: int
    policy: str
    cluster: Any = "a100x8"
    bandwidth: float = 1.0
    slowdown: float = 0.0
    budget_bytes: float | None = None


@dataclass(frozen=True)
class Answer:
    """The plan under these assumptions, beside the program in one piece.

    Attributes:
        whole: the program untiled, in the order in which it was written.
        refused: why there is no plan; `plan` is then the given order of the tiles.
    """

    question: Question
    plan: Plan
    timeline: Timeline
    whole: Graph
    whole_timeline: Timeline
    document: dict[str, Any]
    refused: str | None = None


def cluster_for(question: Question) -> Cluster:
    """The cluster with the bandwidth that is asked about."""
    cluster = read_cluster(question.cluster).cluster
    return replace(
        cluster,
        node_bytes_per_s=cluster.node_bytes_per_s * question.bandwidth,
        network_bytes_per_s=cluster.network_bytes_per_s * question.bandwidth,
    )


def ask(works: Mapping[int, WorkGraph], question: Question) -> Answer:
    """Plan under other assumptions, at once: a narrow search, no proof."""
    cluster = cluster_for(question)
    slow = {"compute_slowdown": question.slowdown, "comm_slowdown": question.slowdown}
    graph = works[question.tiles].on(cluster, budget_bytes=question.budget_bytes, **slow)
    whole = works[1].on(cluster, **slow)
    refused = None
    try:
        plan = make_plan(graph, question.policy, 0)
    except OverBudget as error:
        refused = str(error)
        plan = make_plan(replace(graph, budget_bytes=None), "serial")
    timeline = simulate(plan.graph, plan.chosen.steps)
    whole_timeline = simulate(whole, given_order(whole))
    return Answer(question, plan, timeline, whole, whole_timeline, plan_document(plan, timeline), refused)


def recall(works: Mapping[int, WorkGraph], question: Question, document: Mapping[str, Any]) -> Answer:
    """The plan that a document holds, for the assumptions it was made under: nothing is planned anew."""
    cluster = cluster_for(question)
    slow = {"compute_slowdown": question.slowdown, "comm_slowdown": question.slowdown}
    graph = works[question.tiles].on(cluster, budget_bytes=question.budget_bytes, **slow)
    whole = works[1].on(cluster, **slow)
    index_of = {node.name: index for index, node in enumerate(graph.nodes)}
    bucket_of = {bucket[0]: bucket for bucket in document["buckets"]}
    later = {name for bucket in document["buckets"] for name in bucket[1:]}
    steps = [
        tuple(index_of[one] for one in bucket_of.get(name, [name]))
        for name in document["order"]
        if name not in later
    ]
    timeline = simulate(graph, steps)
    chosen = Candidate("as planned", steps, timeline.makespan_s, document["peak_bytes"])
    given = Candidate(
        "given order", given_order(graph), document["serial_makespan"], document["serial_peak_bytes"]
    )
    limits = bounds(graph, merging=question.policy == "bucketed")
    plan = Plan(graph, question.policy, chosen, given, limits, document["exact"])
    return Answer(question, plan, timeline, whole, simulate(whole, given_order(whole)), dict(document))


def compare_policies(graph: Graph, label_limit: int) -> list[dict[str, Any]]:
    """Every policy on one graph: makespan, peak, and whether it is proven to be the best."""
    rows = []
    for policy in POLICIES:
        try:
            plan = make_plan(graph, policy, label_limit)
        except OverBudget as error:
            row: dict[str, Any] = {
                "policy": policy,
                "makespan": None,
                "peak_bytes": error.smallest_peak_bytes,
            }
            rows.append(row | {"exact": False})
            continue
        chosen: Candidate = plan.chosen
        row = {"policy": policy, "makespan": chosen.makespan_s, "peak_bytes": chosen.peak_bytes}
        rows.append(
            row | {"exact": plan.exact, "lower_bound": min(plan.bounds.lower_bound_s, chosen.makespan_s)}
        )
    return rows
