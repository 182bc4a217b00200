"""Inductor's overlap pass as a baseline: a legal order of the same graph, made with our times."""

from dataclasses import replace

import pytest

from jobs.core.overlap.assembly import assemble
from jobs.core.overlap.clusters import read_cluster
from jobs.core.overlap.graph import Graph, Kind, given_order
from jobs.core.overlap.simulator import makespan_s
from jobs.core.overlap.tiling import tile
from workers.trainer.overlap.capture import capture_program
from workers.trainer.overlap.inductor import inductor_order
from workers.trainer.overlap.programs.catalogue import BUILT_IN


def timed(graph, comm_s):
    """A millisecond for every product, nothing for other compute, and collectives as they are told."""
    times = {Kind.COMM: comm_s}
    return replace(
        graph,
        nodes=tuple(
            replace(node, time_s=times.get(node.kind, 1e-3 if node.name.startswith(("mm", "bmm")) else 0.0))
            for node in graph.nodes
        ),
    )


@pytest.fixture(scope="module")
def two_tiles():
    program = BUILT_IN["tp-transformer"].small(2)
    captured = capture_program(program)
    made = tile(captured.program, captured.batch_dims, 2)
    work = assemble(made.program, made.sizes, captured.ranks_of)
    return program, captured, made, work.on(read_cluster("a100x8").cluster)


def test_the_pass_gives_legal_orders_that_hide_something_and_heeds_our_times(two_tiles):
    program, captured, made, untimed = two_tiles
    orders = {}
    for comm_s in (0.0, 5e-4):
        graph = timed(untimed, comm_s)
        steps = orders[comm_s] = inductor_order(made.program, captured, graph, program.groups)
        assert sorted(steps) == given_order(graph)
        place = {step[0]: number for number, step in enumerate(steps)}
        for index, node in enumerate(graph.nodes):
            assert all(place[source] < place[index] for source in node.inputs), node.name
    assert makespan_s(graph, steps) < makespan_s(graph, given_order(graph))
    assert orders[0.0] != orders[5e-4]


def test_a_graph_with_host_barriers_is_refused(two_tiles):
    program, captured, made, graph = two_tiles
    barred = Graph((replace(graph.nodes[0], kind=Kind.SYNC), *graph.nodes[1:]), graph.outputs)
    with pytest.raises(ValueError, match="knows no host barriers"):
        inductor_order(made.program, captured, barred, program.groups)
