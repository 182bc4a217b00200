"""What `forebay bench overlap` runs: chains of compute and collectives in two or more tiles."""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from forebay.cli.bench import report
from jobs.core.overlap import Graph, make_plan, plan_document, read_graph

STAGES = (2, 3, 4, 8, 16, 24)
PUBLISHED = ((1, 3.0, 2), (2, 3.0, 2), (2, 6.0, 2), (2, 10.0, 2), (4, 6.0, 2), (4, 6.0, 4))
"""Blocks, seconds of each collective, tiles."""


def chain(stages: Sequence[tuple[float, float]], tiles: int, groups: int = 1) -> dict[str, Any]:
    """Stages of (compute, collective) seconds, each tile the same chain, in tile by tile order."""
    nodes: list[dict[str, Any]] = []
    for tile in range(tiles):
        before: list[str] = []
        for number, (compute, comm) in enumerate(stages):
            name = f"{number}.{tile}"
            about = {"bytes": 1, "tile": tile}
            compute_node = {"id": f"c{name}", "kind": "compute", "time": compute, "inputs": before, **about}
            comm_node = {"id": f"r{name}", "kind": "comm", "time": comm, "inputs": [f"c{name}"], **about}
            comm_node["group"] = f"g{number % groups}"
            nodes += [compute_node, comm_node, {"id": f"w{name}", "kind": "wait", "inputs": [f"r{name}"]}]
            nodes[-1]["tile"] = tile
            before = [f"w{name}"]
    return {"nodes": nodes}


def random_stages(count: int, seed: int) -> list[tuple[float, float]]:
    """Compute of 1 to 8 seconds, collectives of 0.5 to 8."""
    rng = random.Random(seed)
    return [(rng.uniform(1.0, 8.0), rng.uniform(0.5, 8.0)) for _ in range(count)]


def random_chains(instances: int) -> list[dict[str, Any]]:
    """Mean and largest excess over the optimum of all interleavings, for two tiles."""
    rows = []
    for count in STAGES:
        graphs = [read_graph(chain(random_stages(count, seed), 2)) for seed in range(instances)]
        plans = {
            name: [make_plan(graph, name) for graph in graphs]
            for name in ("serial", "round-robin", "exact", "bucketed")
        }
        best = [plan.chosen.makespan_s for plan in plans["exact"]]
        over = {
            name: [plan.chosen.makespan_s / least - 1 for plan, least in zip(made, best, strict=True)]
            for name, made in plans.items()
        }
        above = [
            least / plan.bounds.lower_bound_s - 1 for plan, least in zip(plans["exact"], best, strict=True)
        ]
        rows.append(
            {
                "comm_stages": count,
                "instances": instances,
                "proven": sum(plan.exact for plan in plans["exact"]),
                "round_robin_over_exact_mean": statistics.fmean(over["round-robin"]),
                "round_robin_over_exact_max": max(over["round-robin"]),
                "bucketed_over_exact_mean": statistics.fmean(over["bucketed"]),
                "serial_over_exact_mean": statistics.fmean(over["serial"]),
                "exact_over_bound_mean": statistics.fmean(above),
            }
        )
    return rows


def published_chain() -> list[dict[str, Any]]:
    """The chain of attention (4 s) and MLP (8 s) with a collective after each."""
    rows = []
    for blocks, comm, tiles in PUBLISHED:
        stages = [(4.0 / tiles, comm / tiles), (8.0 / tiles, comm / tiles)] * blocks
        graph = read_graph(chain(stages, tiles))
        made = {name: make_plan(graph, name) for name in ("serial", "round-robin", "exact")}
        rows.append(
            {
                "blocks": blocks,
                "comm_s": comm,
                "tiles": tiles,
                **{name.replace("-", "_"): plan.chosen.makespan_s for name, plan in made.items()},
                "lower_bound": made["exact"].bounds.lower_bound_s,
            }
        )
    return rows


def speed(rounds: int) -> list[dict[str, Any]]:
    """Seconds from a checked graph to a plan or a what-if answer, baselines in the same rounds."""
    large = read_graph(chain(random_stages(1_666, 0), 2, groups=2))
    small = read_graph(chain(random_stages(166, 0), 2, groups=2))
    cases: dict[str, tuple[Graph, Callable[[], None]]] = {
        "serial, 10,000 nodes": (large, lambda: _plan(large, "serial")),
        "round-robin, 10,000 nodes": (large, lambda: _plan(large, "round-robin")),
        "bucketed, 10,000 nodes": (large, lambda: _plan(large, "bucketed")),
        "what-if, 1,000 nodes": (small, lambda: _what_if(small)),
    }
    times = report.interleaved({name: run for name, (_, run) in cases.items()}, rounds)
    return [
        {"case": name, "nodes": len(graph.nodes), **times[name].as_dict()}
        for name, (graph, _) in cases.items()
    ]


def _plan(graph: Graph, policy: str) -> None:
    # A copy has none of the derived tables, so that each round pays for them.
    make_plan(replace(graph), policy)


def _what_if(graph: Graph) -> None:
    """Half the bandwidth: new times, new order, new figures and explanations."""
    nodes = tuple(replace(node, time_s=2 * node.time_s) if node.group else node for node in graph.nodes)
    plan_document(make_plan(replace(graph, nodes=nodes), "round-robin"))
