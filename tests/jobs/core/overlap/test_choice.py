"""How many tiles: by simulation, and a search may turn round what quick answers say."""

import pytest

from jobs.core.overlap import OverBudget, read_graph
from jobs.core.overlap.choice import choose


def graphs(reference, comm, budget=None):
    """The published chain in one piece and in two tiles."""
    return {
        tiles: read_graph({**reference.chain(2, comm, tiles), "memory_budget": budget}) for tiles in (1, 2)
    }


def weight_gradients(times):
    """Weight gradients that may run under the collectives, in one piece or in two tiles."""
    nodes = []
    for tile in range(times):
        parts = {"tile": tile if times > 1 else None}
        rows = [
            {"id": "g", "kind": "compute", "time": 2, "inputs": []},
            {"id": "weight", "kind": "compute", "time": 4, "inputs": ["g"]},
            {"id": "back", "kind": "compute", "time": 2, "inputs": ["g"]},
            {"id": "r", "kind": "comm", "group": "g", "time": 4, "inputs": ["back"]},
            {"id": "w", "kind": "wait", "inputs": ["r"]},
            {"id": "b", "kind": "compute", "time": 2, "inputs": ["w"]},
        ]
        for row in rows:
            timed = {"time": row["time"] / times + 0.1 * (times > 1)} if "time" in row else {}
            inputs = [f"{name}{tile}" for name in row["inputs"]]
            nodes.append({**row, **timed, **parts, "id": f"{row['id']}{tile}", "inputs": inputs})
    return read_graph({"nodes": nodes})


def test_two_tiles_are_taken_where_they_are_faster_and_one_where_not(reference) -> None:
    assert choose(graphs(reference, 6), "round-robin").tiles == 2
    lone = read_graph({"nodes": [{"id": "c", "kind": "compute", "time": 1.0, "inputs": []}]})
    assert choose({1: lone, 2: lone}, "bucketed").tiles == 1


def test_a_number_that_is_asked_for_is_taken(reference) -> None:
    choice = choose(graphs(reference, 6), "bucketed", 1)
    assert choice.tiles == 1
    assert [row["tiles"] for row in choice.alternatives] == [1, 2]


@pytest.mark.parametrize("policy", ["exact", "bucketed"])
def test_the_whole_and_the_tiles_are_both_searched(policy) -> None:
    pieces = {tiles: weight_gradients(tiles) for tiles in (1, 2)}
    alone = {tiles: choose({tiles: graph}, policy).plan.chosen.makespan_s for tiles, graph in pieces.items()}
    choice = choose(pieces, policy)
    assert choice.plan.chosen.makespan_s == min(alone.values())


def test_where_nothing_fits_the_smallest_peak_is_told(reference) -> None:
    with pytest.raises(OverBudget) as refused:
        choose(graphs(reference, 6, budget=1.0), "bucketed")
    assert refused.value.smallest_peak_bytes > 1.0
