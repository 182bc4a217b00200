"""The order that Inductor's overlap pass gives a graph, with our times: what our plans are compared with.

The pass (`torch._inductor.fx_passes.overlap_scheduling`) reorders an ATen graph: it keeps a queue of nodes
that are ready, prefers what leads to the next product, and issues collectives early enough to hide under it.
It needs a GPU only to guess times; here it is given those of the graph that is scheduled. Its memory limits
look at tensors on a GPU alone, so that they never bind, and its bucketing, which writes new nodes, is off.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.fx import Node

from jobs.core.overlap.graph import Graph, Kind, Steps
from jobs.core.overlap.operations import CapturedProgram
from jobs.core.overlap.program import Groups
from workers.trainer.overlap.capture import Captured
from workers.trainer.overlap.conversion import module_of, propagate_shapes
from workers.trainer.overlap.worlds import simulated_world

_MS = 1e3


def inductor_order(program: CapturedProgram, captured: Captured, graph: Graph, groups: Groups) -> Steps:
    """Let the pass reorder a program, whole or in tiles, and return its order as one of the graph.

    Args:
        captured: where the program comes from.
        graph: the program's nodes with their times, as `assemble` makes them.
        groups: those of the `Program`.

    Raises:
        ValueError: the graph has host barriers, which the pass would move operators across.
    """
    barrier = next((node.name for node in graph.nodes if node.kind is Kind.SYNC), None)
    if barrier is not None:
        raise ValueError(f"node {barrier}: the pass knows no host barriers")
    index_of = {node.name: index for index, node in enumerate(graph.nodes)}
    module = module_of(program, captured.module)
    propagate_shapes(module)
    times_ms = {node.name: node.time_s * _MS for node in graph.nodes}
    with simulated_world(groups, captured.rank), _times_for_roofline(times_ms) as scheduling:
        scheduled = scheduling.schedule_overlap_bucketing(
            module,
            collective_bucketing=False,
            pre_bucketing_fsdp_collectives=False,
            compute_estimator="analytical",
            custom_runtime_estimation=lambda node, _: times_ms.get(node.name),
        )
    return [(index_of[node.name],) for node in scheduled.graph.nodes if node.op == "call_function"]


@contextmanager
def _times_for_roofline(times_ms: dict[str, float]) -> Iterator[Any]:
    """The pass asks its roofline model even where it is told the times; that one reads a GPU's properties."""
    from torch._inductor.fx_passes import overlap_scheduling

    def told(node: Node) -> float:
        return times_ms.get(node.name, 0.0)

    own = overlap_scheduling.estimate_roofline_runtime_ms
    overlap_scheduling.estimate_roofline_runtime_ms = told
    try:
        yield overlap_scheduling
    finally:
        overlap_scheduling.estimate_roofline_runtime_ms = own
