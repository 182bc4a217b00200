"""Lifetimes of storages: who keeps what alive, and until when."""

import pytest

from jobs.core.overlap import memory_profile, read_graph
from jobs.core.overlap.graph import given_order


def profile(nodes, **more):
    graph = read_graph({"nodes": nodes, **more})
    return list(memory_profile(graph, given_order(graph)).live_bytes)


def compute(name, size, inputs=()):
    return {"id": name, "kind": "compute", "time": 1.0, "bytes": size, "inputs": list(inputs)}


def comm(name, size, inputs=()):
    return {"id": name, "kind": "comm", "group": "tp", "time": 1.0, "bytes": size, "inputs": list(inputs)}


def wait(name, source):
    return {"id": name, "kind": "wait", "inputs": [source]}


CASES = {
    "an input goes after its last use, and a step is measured before that": (
        [compute("a", 1), compute("b", 10, ["a"]), compute("c", 100, ["b"])], ["c"], [1, 11, 110],
    ),
    "what nobody uses goes at once": ([compute("a", 1), compute("b", 10)], ["b"], [1, 10]),
    "the input of a collective stays until its wait": (
        [compute("a", 1), comm("r", 10, ["a"]), compute("x", 100), wait("w", "r"), compute("y", 1000, ["w"])],
        ["y"],
        [1, 11, 111, 11, 1010],
    ),
    "only until its first wait": (
        [compute("a", 1), comm("r", 10, ["a"]), wait("w", "r"), wait("v", "r"), compute("y", 100, ["v"])],
        ["y"],
        [1, 11, 11, 10, 110],
    ),
    "a collective nobody waits for keeps buffer and input": (
        [compute("a", 1), comm("r", 10, ["a"]), compute("x", 100), compute("y", 1000)],
        ["y"],
        [1, 11, 111, 1011],
    ),
    "a view keeps the whole storage": (
        [
            compute("a", 1),
            {"id": "v", "kind": "view", "inputs": ["a"], "bytes": 7},
            compute("x", 10),
            compute("y", 100, ["v"]),
            compute("z", 1000),
        ],
        ["z"],
        [1, 1, 11, 101, 1000],
    ),
    "an output through a view stays to the end": (
        [compute("a", 1), {"id": "v", "kind": "view", "inputs": ["a"]}, compute("x", 10)], ["v"], [1, 1, 11],
    ),
    "a host barrier reads its input": (
        [compute("a", 1), compute("x", 10), {"id": "h", "kind": "sync", "inputs": ["a"]}, compute("y", 100)],
        ["x", "y"],
        [1, 11, 11, 110],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_live_bytes(name) -> None:
    nodes, outputs, expected = CASES[name]
    assert profile(nodes, outputs=outputs) == expected


def test_the_peak_is_a_whole_number_when_all_sizes_are() -> None:
    graph = read_graph({"nodes": [compute("a", 3.0), compute("b", 2**60 + 1, ["a"])]})
    peak = memory_profile(graph, given_order(graph)).peak_bytes
    assert isinstance(peak, int)
    assert peak == 2**60 + 4
