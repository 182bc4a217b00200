"""Every malformed graph is refused with the node and the rule."""

import pytest

from jobs.core.overlap import MalformedGraph, read_graph

A = {"id": "a", "kind": "compute", "time": 1.0, "inputs": []}
R = {"id": "r", "kind": "comm", "group": "tp", "time": 1.0, "inputs": ["a"]}
W = {"id": "w", "kind": "wait", "inputs": ["r"]}

FAULTY = [
    ([], "JSON object"),
    ({}, "nodes: a list"),
    ({"nodes": {}}, "nodes: a list"),
    ({"nodes": [3]}, r"nodes\[0\]"),
    ({"nodes": [{"kind": "compute"}]}, r"nodes\[0\].id"),
    ({"nodes": [A, A]}, "node a: the id is used twice"),
    ({"nodes": [{**A, "kind": "gemm"}]}, "node a: kind 'gemm'"),
    ({"nodes": [{**A, "kind": ["compute"]}]}, "node a: kind"),
    ({"nodes": [{**A, "inputs": ["b"]}]}, "node a: input 'b' is no node"),
    ({"nodes": [{**A, "inputs": [["a"]]}]}, "node a: input"),
    ({"nodes": [{**A, "inputs": "a"}]}, "node a: inputs has to be a list"),
    ({"nodes": [{**A, "inputs": ["a"]}]}, "node a: input a is on a cycle"),
    ({"nodes": [{**A, "inputs": ["b"]}, {**A, "id": "b", "inputs": ["a"]}]}, "node a: input b is on a cycle"),
    ({"nodes": [{**A, "inputs": ["b"]}, {**A, "id": "b"}]}, "node a: input b is used before its definition"),
    ({"nodes": [{"id": "a", "kind": "compute"}]}, "node a: time is required"),
    ({"nodes": [{**A, "time": -1}]}, "node a: time has to be 0 or more"),
    ({"nodes": [{**A, "time": float("nan")}]}, "node a: time has to be finite"),
    ({"nodes": [{**A, "time": float("inf")}]}, "node a: time has to be finite"),
    ({"nodes": [{**A, "time": 10**400}]}, "node a: time has to be finite"),
    ({"nodes": [{**A, "time": "1"}]}, "node a: time has to be a number"),
    ({"nodes": [{**A, "time": True}]}, "node a: time has to be a number"),
    ({"nodes": [{**A, "bytes": -5}]}, "node a: bytes has to be 0 or more"),
    ({"nodes": [{**A, "latency": 2.0}]}, "node a: latency 2 is more than its time"),
    ({"nodes": [{**A, "tile": -1}]}, "node a: tile"),
    ({"nodes": [{**A, "tile": "x"}]}, "node a: tile"),
    ({"nodes": [{**A, "merge": 4}]}, "node a: merge"),
    ({"nodes": [A, {**R, "group": None}]}, "node r: a comm needs the name of its group"),
    ({"nodes": [A, R, {**A, "id": "b", "inputs": ["r"]}]}, "node b: takes the comm r itself"),
    ({"nodes": [A, R, {**R, "id": "s", "inputs": ["r"]}]}, "node s: takes the comm r itself"),
    ({"nodes": [A, R, {"id": "h", "kind": "sync", "inputs": ["r"]}]}, "node h: takes the comm r itself"),
    ({"nodes": [A, R, {"id": "v", "kind": "view", "inputs": ["r"]}]}, "node v: takes the comm r itself"),
    (
        {"nodes": [A, R, {"id": "v", "kind": "view", "inputs": ["r"]}, {**A, "id": "b", "inputs": ["v"]}]},
        "node b: takes the comm v itself",
    ),
    ({"nodes": [A, {**W, "inputs": ["a"]}]}, "node w: waits on a, which is no comm"),
    ({"nodes": [A, {**W, "inputs": []}]}, "node w: a wait needs an input"),
    ({"nodes": [{"id": "v", "kind": "view"}]}, "node v: a view needs an input"),
    ({"nodes": [A], "outputs": ["b"]}, "outputs: 'b' is no node"),
    ({"nodes": [A], "outputs": "a"}, "outputs: a list"),
    ({"nodes": [A], "outputs": ["a", "a"]}, "outputs: a is listed twice"),
    ({"nodes": [A, R, W], "outputs": ["r"]}, "outputs: r is a comm"),
    ({"nodes": [A, {**A, "id": "b", "time": 1e300}]}, "node b: time or bytes add up"),
    ({"nodes": [A], "slowdown": {"compute": 1e9}}, "slowdown.compute has to be at most"),
    ({"nodes": [A], "memory_budget": -1}, "memory_budget has to be 0 or more"),
    ({"nodes": [A], "memory_budget": "1 GB"}, "memory_budget has to be a number"),
    ({"nodes": [A], "slowdown": 0.2}, "slowdown: an object"),
    ({"nodes": [A], "slowdown": {"comm": -0.1}}, "slowdown.comm has to be 0 or more"),
]


@pytest.mark.parametrize(("document", "message"), FAULTY)
def test_a_malformed_graph_is_refused_by_name(document, message) -> None:
    with pytest.raises(MalformedGraph, match=message):
        read_graph(document)


def test_what_may_be_left_out_may_be_left_out() -> None:
    graph = read_graph({"nodes": [{"id": "a", "kind": "compute", "time": 1}, R, W]})
    assert (graph.outputs, graph.budget_bytes, graph.slowed) == ((2,), None, False)
    assert graph.nodes[0].tile is None


def test_views_waits_and_barriers_have_neither_time_nor_bytes() -> None:
    view = {"id": "v", "kind": "view", "inputs": ["a"], "time": 9, "bytes": 9}
    assert read_graph({"nodes": [A, view]}).nodes[1].size_bytes == 0
    assert read_graph({"nodes": [A, view]}).nodes[1].time_s == 0


def test_a_wait_on_a_wait_and_on_a_view_of_a_collective_is_legal() -> None:
    view = {"id": "v", "kind": "view", "inputs": ["r"]}
    graph = read_graph({"nodes": [A, R, view, {**W, "inputs": ["v"]}, {**W, "id": "x", "inputs": ["w"]}]})
    assert graph.waits_of == {1: (3, 4)}


def test_an_empty_graph_is_a_graph() -> None:
    assert read_graph({"nodes": []}).nodes == ()
