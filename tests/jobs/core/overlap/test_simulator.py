"""Streams, waits, barriers, slowdown, exposed time: small cases with answers by hand, and table 4.3."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.overlap import bounds, make_plan, plan_document, read_graph, simulate
from jobs.core.overlap.graph import given_order
from jobs.core.overlap.interference import slowed_times
from jobs.core.overlap.simulator import ideal_times


def compute(name, time, inputs=(), **more):
    return {"id": name, "kind": "compute", "time": time, "inputs": list(inputs), **more}


def comm(name, time, inputs=(), group="tp", **more):
    return {"id": name, "kind": "comm", "group": group, "time": time, "inputs": list(inputs), **more}


def wait(name, *inputs, **more):
    return {"id": name, "kind": "wait", "inputs": list(inputs), **more}


def timeline(nodes, **more):
    graph = read_graph({"nodes": nodes, **more})
    found = simulate(graph, given_order(graph))
    names = [node.name for node in graph.nodes]
    return found, dict(zip(names, zip(found.starts_s, found.ends_s, strict=True), strict=True))


def test_a_collective_starts_after_all_compute_issued_before_it_not_only_its_inputs() -> None:
    _, at = timeline([compute("a", 2), compute("b", 5), comm("r", 1, ["a"]), wait("w", "r")])
    assert at["r"] == (7.0, 8.0)


def test_a_wait_stalls_later_compute_that_does_not_need_it() -> None:
    found, at = timeline([compute("a", 1), comm("r", 4, ["a"]), wait("w", "r"), compute("b", 2)])
    assert at["w"] == (1.0, 5.0)
    assert at["b"] == (5.0, 7.0)
    assert (found.exposed_comm_s, found.compute_idle_s) == (4.0, 4.0)


def test_one_group_is_first_in_first_out_and_two_groups_run_beside_each_other() -> None:
    nodes = [compute("a", 1), comm("r", 4, ["a"]), comm("s", 2, ["a"]), comm("e", 3, ["a"], group="ep")]
    found, at = timeline(nodes)
    assert (at["r"], at["s"], at["e"]) == ((1.0, 5.0), (5.0, 7.0), (1.0, 4.0))
    assert found.exposed_comm_s == 6.0


def test_a_collective_nobody_waits_for_still_runs() -> None:
    found, _ = timeline([compute("a", 1), comm("r", 9, ["a"]), compute("b", 1)])
    assert found.makespan_s == 10.0


def test_a_wait_on_a_wait_is_free_and_one_on_a_view_of_the_collective_waits() -> None:
    nodes = [comm("r", 3), {"id": "v", "kind": "view", "inputs": ["r"]}, wait("w", "v"), wait("x", "w")]
    _, at = timeline(nodes)
    assert at["w"] == (0.0, 3.0)
    assert at["x"] == (3.0, 3.0)


def test_overlap_slows_both_streams_down() -> None:
    nodes = [compute("p", 0), comm("r", 2, ["p"]), compute("a", 4), wait("w", "r")]
    found, at = timeline(nodes, slowdown={"compute": 0.5, "comm": 1.0})
    # Beside each other the collective needs 4 s; compute gets 4 / 1.5 done and needs 4/3 s more.
    assert at["r"][1] == pytest.approx(4.0)
    assert found.makespan_s == pytest.approx(4.0 + 4.0 / 3.0)
    assert found.exposed_comm_s == pytest.approx(0.0)
    assert found.compute_idle_s == pytest.approx(0.0)


def test_two_groups_beside_compute_slow_it_down_once() -> None:
    nodes = [comm("r", 1), comm("e", 1, group="ep"), compute("a", 4), wait("w", "r"), wait("x", "e")]
    found, _ = timeline(nodes, slowdown={"compute": 1.0, "comm": 0.0})
    assert found.makespan_s == pytest.approx(4.5)


def test_a_stalled_compute_stream_does_not_slow_the_collective() -> None:
    found, _ = timeline([comm("r", 3), wait("w", "r"), compute("a", 1)], slowdown={"compute": 1, "comm": 1})
    assert found.makespan_s == pytest.approx(4.0)


@given(st.integers(0, 10**9), st.sampled_from([0.0, 0.2, 1.0]), st.sampled_from([0.0, 0.2, 1.0]))
@settings(max_examples=60, deadline=None)
def test_slowdown_lies_between_the_ideal_time_and_everything_slowed(reference, seed, a, b) -> None:
    document = reference.random_graph(random.Random(seed), 14)
    document["slowdown"] = {"compute": a, "comm": b}
    graph = read_graph(document)
    steps = given_order(graph)
    ideal, slowed = ideal_times(graph, steps), slowed_times(graph, steps)
    if a == b == 0.0:
        assert slowed[0] == pytest.approx(ideal[0])
        assert slowed[1] == pytest.approx(ideal[1])
    for quick, slow in zip(ideal[1], slowed[1], strict=True):
        assert quick - 1e-9 <= slow <= quick * (1 + max(a, b)) + 1e-9


TABLE_4_3 = [
    (1, 3, 2, 18.0, 13.5, 12.0),
    (2, 3, 2, 36.0, 25.5, 24.0),
    (2, 6, 2, 48.0, 30.0, 24.0),
    (2, 10, 2, 64.0, 42.0, 40.0),
    (4, 6, 2, 96.0, 58.0, 48.0),
    (4, 6, 4, 96.0, 49.5, 48.0),
]


@pytest.mark.parametrize(("stages", "time", "tiles", "serial", "taken_in_turn", "simple_bound"), TABLE_4_3)
def test_round_robin_with_the_wait_first_gives_the_published_chain(
    reference, stages, time, tiles, serial, taken_in_turn, simple_bound
) -> None:
    graph = read_graph(reference.chain(stages, time, tiles))
    limits = bounds(graph)
    assert make_plan(graph, "serial").chosen.makespan_s == serial
    assert make_plan(graph, "round-robin").chosen.makespan_s == taken_in_turn
    assert max(limits.critical_path_s, limits.compute_load_s, *limits.group_load_s.values()) == simple_bound


def test_the_documented_chain_gets_the_documented_answer(reference) -> None:
    plan = plan_document(make_plan(read_graph(reference.chain(1, 3)), "round-robin"))
    keys = ("makespan", "serial_makespan", "lower_bound", "critical_path", "peak_bytes", "exposed_comm")
    assert [plan[key] for key in keys] == [13.5, 18.0, 13.5, 9.0, 4096, 1.5]
    assert plan["compute_idle"] == 1.5
    assert [d["node"] for d in plan["decisions"] if d["reason"].startswith("stays exposed because")] == [
        "r.m0.1"
    ]


@given(st.integers(0, 10**9), st.booleans())
@settings(max_examples=80, deadline=None)
def test_no_order_beats_the_bounds(reference, seed, merge) -> None:
    document = reference.random_graph(random.Random(seed), 8, merge=merge)
    model = reference.Model(document)
    best = min(map(model.makespan, model.interleavings(merge=merge)))
    assert bounds(read_graph(document), merging=merge).lower_bound_s <= best * (1 + 1e-12) + 1e-12


def test_the_head_load_tail_bound_is_that_of_all_subsets(reference) -> None:
    rng = random.Random(5)
    for _ in range(20):
        graph = read_graph(reference.random_graph(rng, 9, syncs=False))
        assert bounds(graph).head_load_tail_s == pytest.approx(reference.subset_bound(graph))
