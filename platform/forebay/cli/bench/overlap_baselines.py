"""What `forebay bench overlap` compares on one graph: given order, Inductor's pass, ours, the bound."""

from typing import Any

from forebay.cli.bench.overlap_programs import CLUSTERS, TRAINED, Captures

TILES = (1, 2)


def orders_compared(captures: Captures) -> list[dict[str, Any]]:
    """Simulated seconds and peak of a step on one graph, for the whole program and for two tiles.

    Inductor's pass gets the times that our plan is made with, and its order is simulated as ours is.
    """
    from jobs.core.overlap import make_plan
    from jobs.core.overlap.clusters import read_cluster
    from jobs.core.overlap.memory import peak_bytes
    from jobs.core.overlap.simulator import makespan_s
    from workers.trainer.overlap.inductor import inductor_order

    rows = []
    for name in TRAINED:
        for cluster in CLUSTERS:
            profile = read_cluster(cluster).cluster
            for tiles in TILES:
                one = captures.tiled(name, cluster, tiles)
                graph = one.work.on(profile)
                plan = make_plan(graph, "bucketed", 0)
                theirs = inductor_order(one.made.program, one.captured, graph, one.groups)
                bound_s = plan.bounds.lower_bound_s
                rows.append(
                    {
                        "program": name,
                        "cluster": cluster,
                        "tiles": tiles,
                        "nodes": len(graph.nodes),
                        "serial_s": plan.given.makespan_s,
                        "inductor_s": (inductor_s := makespan_s(graph, theirs)),
                        "ours_s": plan.chosen.makespan_s,
                        "bound_s": bound_s,
                        "inductor_over_bound": inductor_s / bound_s - 1,
                        "ours_over_bound": plan.chosen.makespan_s / bound_s - 1,
                        "serial_peak_bytes": plan.given.peak_bytes,
                        "inductor_peak_bytes": peak_bytes(graph, theirs),
                        "ours_peak_bytes": plan.chosen.peak_bytes,
                    }
                )
    return rows
