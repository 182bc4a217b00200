"""What the policies decide on cases that users meet, and the reasons they give."""

import pytest

from jobs.core.overlap import OverBudget, make_plan, plan_document, read_graph


def plan_of(document, policy):
    return plan_document(make_plan(read_graph(document), policy))


def reasons(plan, node):
    return [decision["reason"] for decision in plan["decisions"] if decision["node"] == node]


def test_a_graph_without_communication_keeps_its_order(reference) -> None:
    nodes = [
        {"id": f"c{i}", "kind": "compute", "time": 1.0, "inputs": [f"c{i - 1}"] if i else []}
        for i in range(4)
    ]
    plan = plan_of({"nodes": nodes}, "bucketed")
    assert (plan["order"], plan["makespan"]) == (["c0", "c1", "c2", "c3"], 4.0)
    assert plan["decisions"][0]["action"] == "nothing to overlap"


def test_round_robin_that_would_be_slower_gives_way_to_the_given_order() -> None:
    # Taken in turn, the collective of tile 1 comes first and delays the second one of tile 0, which b needs.
    nodes = [
        {"id": "a", "kind": "compute", "time": 1, "inputs": [], "tile": 0},
        {"id": "r", "kind": "comm", "group": "g", "time": 5, "inputs": ["a"], "tile": 0},
        {"id": "w", "kind": "wait", "inputs": ["r"], "tile": 0},
        {"id": "s", "kind": "comm", "group": "g", "time": 9, "inputs": ["w"], "tile": 0},
        {"id": "p", "kind": "comm", "group": "g", "time": 8, "inputs": [], "tile": 1},
        {"id": "x", "kind": "wait", "inputs": ["s"], "tile": 0},
        {"id": "b", "kind": "compute", "time": 9, "inputs": ["x"], "tile": 0},
        {"id": "q", "kind": "wait", "inputs": ["p"], "tile": 1},
    ]
    given_order = [node["id"] for node in nodes]
    plan = plan_of({"nodes": nodes}, "round-robin")
    assert plan["order"] == given_order
    assert plan["makespan"] == plan["serial_makespan"] == 24.0
    assert plan["decisions"][0]["action"] == "took given order"
    assert "round-robin is slower" in plan["decisions"][0]["reason"]


def test_the_budget_chooses_between_round_robin_and_serial_tiles(reference) -> None:
    document = reference.chain(2, 6)
    free = plan_of(document, "round-robin")
    tight = plan_of({**document, "memory_budget": free["peak_bytes"] - 1}, "round-robin")
    assert free["makespan"] < tight["makespan"] <= tight["serial_makespan"]
    assert tight["peak_bytes"] < free["peak_bytes"]
    assert "round-robin is over the memory budget" in tight["decisions"][0]["reason"]
    best = plan_of({**document, "memory_budget": free["peak_bytes"] - 1}, "exact")
    assert best["exact"]
    assert best["makespan"] <= tight["makespan"]
    with pytest.raises(OverBudget):
        plan_of({**document, "memory_budget": 2000}, "exact")


def test_exact_says_when_it_is_not(reference) -> None:
    assert plan_of(reference.chain(2, 6), "exact")["exact"]
    assert not plan_of(reference.chain(2, 6, tiles=3), "exact")["exact"]
    assert not plan_of({**reference.chain(2, 6), "slowdown": {"compute": 0.2, "comm": 0.2}}, "exact")["exact"]


@pytest.mark.parametrize("tiles", [3, 4, 8])
def test_more_tiles_are_never_worse_than_taken_in_turn(reference, tiles) -> None:
    document = reference.chain(3, 7, tiles=tiles)
    assert plan_of(document, "exact")["makespan"] <= plan_of(document, "round-robin")["makespan"]


def test_small_collectives_of_two_tiles_are_merged_where_latency_is_all(reference) -> None:
    document = reference.chain(1, 2)
    for node in document["nodes"]:
        if node["kind"] == "comm":
            node.update(merge=node["id"].split(".")[1], latency=0.9 * node["time"])
    for node in document["nodes"]:
        if node["kind"] == "compute":
            node["time"] = 0.01
    plan = plan_of(document, "bucketed")
    assert plan["buckets"] == [["r.a0.0", "r.a0.1"], ["r.m0.0", "r.m0.1"]]
    assert plan["makespan"] < plan_of(document, "exact")["makespan"]
    assert plan["makespan"] == pytest.approx(2 * (0.9 + 0.2 + 0.02))


def test_collectives_of_untiled_gradients_are_merged_across_other_work() -> None:
    nodes = []
    for layer in range(4):
        nodes.append({"id": f"g{layer}", "kind": "compute", "time": 0.5, "inputs": []})
        nodes.append({"id": f"r{layer}", "kind": "comm", "group": "dp", "time": 2.0, "latency": 1.8,
                      "merge": "grad", "inputs": [f"g{layer}"]})  # fmt: skip
    nodes += [{"id": f"w{layer}", "kind": "wait", "inputs": [f"r{layer}"]} for layer in range(4)]
    plan = plan_of({"nodes": nodes}, "bucketed")
    assert plan["makespan"] < plan["serial_makespan"] == 8.5
    assert len(plan["buckets"]) >= 1


def test_independent_work_after_a_wait_moves_under_the_collective_when_nothing_is_tiled() -> None:
    nodes = [
        {"id": "a", "kind": "compute", "time": 1, "inputs": []},
        {"id": "r", "kind": "comm", "group": "g", "time": 4, "inputs": ["a"]},
        {"id": "w", "kind": "wait", "inputs": ["r"]},
        {"id": "weight", "kind": "compute", "time": 3, "inputs": ["a"]},
        {"id": "b", "kind": "compute", "time": 1, "inputs": ["w"]},
    ]
    plan = plan_of({"nodes": nodes}, "bucketed")
    assert (plan["order"], plan["makespan"]) == (["a", "r", "weight", "w", "b"], 6.0)
    assert reasons(plan, "r") == ["stays exposed because all compute that is left depends on it"]


def test_work_that_stands_before_what_a_collective_needs_moves_under_it() -> None:
    nodes = [
        {"id": "g", "kind": "compute", "time": 2, "inputs": []},
        {"id": "weight", "kind": "compute", "time": 4, "inputs": ["g"]},
        {"id": "back", "kind": "compute", "time": 2, "inputs": ["g"]},
        {"id": "r", "kind": "comm", "group": "g", "time": 4, "inputs": ["back"]},
        {"id": "w", "kind": "wait", "inputs": ["r"]},
        {"id": "b", "kind": "compute", "time": 2, "inputs": ["w"]},
    ]
    plan = plan_of({"nodes": nodes}, "bucketed")
    assert (plan["order"], plan["makespan"]) == (["g", "back", "r", "weight", "w", "b"], 10.0)
    assert plan["decisions"][0]["action"] == "took list schedule"
    # A value more alive while the collective runs is one too many.
    sized = [node if node["kind"] == "wait" else {**node, "bytes": 1} for node in nodes]
    free = plan_of({"nodes": sized}, "bucketed")
    tight = plan_of({"nodes": sized, "memory_budget": free["serial_peak_bytes"]}, "bucketed")
    assert tight["peak_bytes"] <= free["serial_peak_bytes"] < free["peak_bytes"]
    assert tight["makespan"] <= tight["serial_makespan"]


def test_compute_stands_still_for_a_wait_that_is_nearly_over_and_far_more_urgent() -> None:
    nodes = [
        {"id": "a", "kind": "compute", "time": 1, "inputs": []},
        {"id": "r", "kind": "comm", "group": "g", "time": 3, "inputs": ["a"]},
        {"id": "w", "kind": "wait", "inputs": ["r"]},
        {"id": "b", "kind": "compute", "time": 1, "inputs": ["w"]},
        {"id": "s", "kind": "comm", "group": "g", "time": 20, "inputs": ["b"]},
        {"id": "x", "kind": "wait", "inputs": ["s"]},
        {"id": "c", "kind": "compute", "time": 2, "inputs": ["a"]},
        {"id": "d", "kind": "compute", "time": 9, "inputs": ["a"]},
    ]
    plan = plan_of({"nodes": nodes}, "bucketed")
    assert plan["makespan"] == 25.0


def test_nothing_crosses_a_host_barrier() -> None:
    nodes = [
        {"id": "a", "kind": "compute", "time": 1, "inputs": [], "tile": 0},
        {"id": "r", "kind": "comm", "group": "g", "time": 4, "inputs": ["a"], "tile": 0},
        {"id": "w", "kind": "wait", "inputs": ["r"], "tile": 0},
        {"id": "h", "kind": "sync", "inputs": ["w"]},
        {"id": "b", "kind": "compute", "time": 4, "inputs": [], "tile": 1},
    ]
    for policy in ("round-robin", "exact", "bucketed"):
        plan = plan_of({"nodes": nodes}, policy)
        assert (plan["order"], plan["makespan"], plan["lower_bound"]) == (["a", "r", "w", "h", "b"], 9.0, 9.0)


def test_a_collective_nobody_waits_for_is_kept_and_shown_as_waste() -> None:
    nodes = [
        {"id": "a", "kind": "compute", "time": 1, "inputs": []},
        {"id": "r", "kind": "comm", "group": "g", "time": 4, "inputs": ["a"]},
    ]
    plan = plan_of({"nodes": nodes}, "bucketed")
    assert plan["order"] == ["a", "r"]
    assert "waste" in reasons(plan, "r")[0]
