"""Lifetimes of storages: who keeps what alive, and until when."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.overlap import make_plan, memory_profile, read_graph
from jobs.core.overlap.graph import given_order
from jobs.core.overlap.lifetimes import Lifetimes, MemoryState


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


@given(st.integers(0, 10**9), st.booleans())
@settings(max_examples=100, deadline=None)
def test_what_the_searches_prune_by_is_the_profile_of_the_order(reference, seed, one_storage) -> None:
    graph = read_graph(reference.random_graph(random.Random(seed), 12, merge=True))
    graph = replace(graph, bucket_is_one_storage=one_storage)
    steps = make_plan(graph, "bucketed").chosen.steps
    lifetimes, state, found = Lifetimes(graph), MemoryState(), []
    for step in steps:
        state, during = lifetimes.after(state, step)
        found.append(during)
    assert found == list(memory_profile(graph, steps).live_bytes)


def test_merged_results_go_together_from_one_buffer_and_one_by_one_from_their_own() -> None:
    nodes = [
        compute("a", 1), comm("r", 10, ["a"]), comm("s", 100, ["a"]), wait("v", "r"), wait("w", "s"),
        compute("x", 1000, ["v"]), compute("y", 10_000, ["w"]), compute("z", 100_000, ["y"]),
    ]  # fmt: skip
    graph = read_graph({"nodes": nodes, "outputs": ["z"]})
    steps = [(0,), (1, 2), (3,), (4,), (5,), (6,), (7,)]
    live = {
        flag: list(memory_profile(replace(graph, bucket_is_one_storage=flag), steps).live_bytes)
        for flag in (True, False)
    }
    assert live[True] == [1, 111, 111, 110, 1110, 10_110, 110_000]
    assert live[False] == [1, 111, 111, 110, 1110, 10_100, 110_000]
