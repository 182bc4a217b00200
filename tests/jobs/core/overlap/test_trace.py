"""Traces as the trace processor reads them: every slice in its place, every arrow tied to its wait."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.overlap import chrome_trace, make_plan, memory_profile, read_graph, simulate
from jobs.core.overlap.graph import Kind


def imported(trace_processor, graph, steps):
    return trace_processor.import_trace(json.dumps(chrome_trace(graph, steps), allow_nan=False))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from(["serial", "round-robin", "bucketed"]), st.booleans())
def test_every_step_and_every_wait_arrives_without_an_import_error(
    reference, trace_processor, seed, policy, slowed
) -> None:
    rng = random.Random(seed)
    document = reference.random_graph(rng, rng.randint(0, 14), merge=True)
    # Microseconds with more digits than a nanosecond has, where rounding twice would make slices overlap.
    unit = rng.choice([1.0, 1e-6 / 3, 1e-7 / 7])
    for node in document["nodes"]:
        node["time"] *= unit
        node["latency"] = node.get("latency", 0.0) * unit
    document["slowdown"] = {"compute": 0.3, "comm": 0.1} if slowed else None
    plan = make_plan(read_graph(document), policy)
    graph, steps = plan.graph, plan.chosen.steps
    found = imported(trace_processor, graph, steps)
    assert found.faults == []
    timeline = simulate(graph, steps)
    names = {member: " + ".join(graph.nodes[one].name for one in step) for step in steps for member in step}
    slices = {one.name: one for one in found.slices}
    assert len(slices) == len(found.slices)
    assert slices.keys() == {names[step[0]] for step in steps if graph.nodes[step[0]].kind is not Kind.VIEW}
    for index, node in enumerate(graph.nodes):
        if node.kind is Kind.VIEW:
            continue
        one, start, end = slices[names[index]], timeline.starts_s[index] * 1e9, timeline.ends_s[index] * 1e9
        timed = node.kind is Kind.COMPUTE and round(end) > round(start)
        # What takes no time moves at most behind everything else that takes none.
        late = 1 if timed else len(steps) + 1
        assert (one.start_ns, one.end_ns) == (pytest.approx(start, abs=late), pytest.approx(end, abs=late))
    arrows = {(names[comm], names[waits[0]]) for comm, waits in graph.waits_of.items() if waits}
    drawn = {(launch.name, wait.name) for launch, wait in found.arrows}
    assert {one for one in drawn if slices[one[0]].duration_ns} == {
        one for one in arrows if slices[one[0]].duration_ns
    }
    assert len(found.arrows) == sum(bool(waits) for waits in graph.waits_of.values())
    peak = memory_profile(graph, steps).peak_bytes
    assert max((live for _, live in found.counters.get("bytes live", [])), default=0) == peak


def test_an_arrow_enters_its_wait_and_neither_what_comes_next_nor_a_wait_of_the_same_moment(
    reference, trace_processor
) -> None:
    graph = read_graph(reference.chain(3, 7.0 / 3))
    found = imported(trace_processor, graph, make_plan(graph, "round-robin").chosen.steps)
    assert found.faults == []
    assert {wait.name: launch.name for launch, wait in found.arrows} == {
        node.name: node.name.replace("w.", "r.") for node in graph.nodes if node.kind is Kind.WAIT
    }
    assert any(wait.duration_ns for _, wait in found.arrows)
    assert found.processes == {0: "rank 0"}
    assert found.threads == {(0, 0): "compute", (0, 1): "comm tp"}


SLICE = {"ph": "X", "name": "a", "cat": "c", "pid": 0, "tid": 0, "ts": 0.0, "dur": 2.0}
ARROW = {"ph": "s", "name": "wait", "cat": "wait", "pid": 0, "tid": 0, "id": 1, "ts": 1.0}


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([SLICE, {**SLICE, "name": "b", "ts": 1.999}], "b overlaps a"),
        ([{**SLICE, "ts": 1e-7}], "no decimal number"),
        ([{**SLICE, "ts": 8.001}], "8001, 8000"),
        ([{key: value for key, value in SLICE.items() if key != "dur"}], "no time"),
        ([ARROW], "no slice for the arrow"),
        ([SLICE, {**ARROW, "ph": "f", "bp": "e"}], "without having begun"),
        ([{"ph": "C", "name": "bytes", "pid": 0, "ts": 0.0, "args": {"live": "many"}}], "no number"),
    ],
)
def test_the_reader_of_these_tests_tells_what_the_trace_processor_would(
    trace_processor, events, fault
) -> None:
    (found,) = trace_processor.import_trace(json.dumps({"traceEvents": events})).faults
    assert fault in found
