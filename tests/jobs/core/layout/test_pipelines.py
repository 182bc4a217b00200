"""The search for the best pipeline of given groups: both ways of searching, and the bounds they rest on."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.layout import Device, Instance, Layer
from jobs.core.layout import pipelines as module
from jobs.core.layout.pipelines import OutOfTime, PipelineSearch, most_microbatches
from jobs.core.layout.work import GroupType, Work
from jobs.core.pipeline import one_f_one_b_makespan


def work_for(layers, transfer_s=0.0):
    device = Device("g0", "n0", 1.0, 100.0)
    return Work(Instance((device,), tuple(layers), None, (1,), {1: 1.0}, 1, 4, transfer_s))


layers = st.lists(
    st.builds(
        Layer, st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([1.0, 2.0]), st.sampled_from([1.0, 2.0])
    ),
    min_size=1,
    max_size=6,
)
kinds = st.lists(
    st.builds(GroupType, st.sampled_from([0.4, 1.0, 1.9]), st.sampled_from([2.0, 4.0, 50.0])),
    min_size=1,
    max_size=4,
)


@settings(max_examples=80, deadline=None)
@given(layers, kinds, st.integers(1, 8), st.sampled_from([0.0, 0.7]), st.booleans())
def test_branch_and_bound_finds_what_listing_everything_finds(
    layers, kinds, microbatches, transfer_s, keep_order
):
    work = work_for(layers, transfer_s)
    listed = PipelineSearch(work, kinds, microbatches, keep_order).best(math.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_LISTED", 0)
        patch.setattr(module, "CHUNK_ROWS", 7)
        searched = PipelineSearch(work, kinds, microbatches, keep_order).best(math.inf)
    if listed is None:
        assert searched is None
        return
    assert searched.time == pytest.approx(listed.time, rel=1e-12)
    assert sorted(searched.kinds) == sorted(kinds)
    if keep_order:
        assert searched.kinds == tuple(kinds)
    edges = [sum(searched.layers[:i]) for i in range(len(kinds) + 1)]
    assert edges[-1] == len(layers)
    forward_s = [
        (work.forward[b] - work.forward[a]) / kind.rate
        for kind, a, b in zip(searched.kinds, edges, edges[1:], strict=False)
    ]
    backward_s = [
        (work.backward[b] - work.backward[a]) / kind.rate
        for kind, a, b in zip(searched.kinds, edges, edges[1:], strict=False)
    ]
    assert one_f_one_b_makespan(forward_s, backward_s, microbatches, transfer_s) == pytest.approx(
        searched.time
    )


@settings(max_examples=80, deadline=None)
@given(layers, kinds, st.integers(1, 8), st.sampled_from([0.0, 0.7]), st.floats(1.0, 80.0))
def test_no_pipeline_runs_more_micro_batches_than_the_bound(layers, kinds, microbatches, transfer_s, limit):
    work = work_for(layers, transfer_s)
    found = PipelineSearch(work, kinds, microbatches).best(limit)
    if found is not None:
        assert found.time < limit
        assert most_microbatches(work, kinds, limit, 20) >= microbatches


def test_a_search_that_is_told_to_stop_stops():
    work = work_for([Layer(1.0, 2.0, 1.0)] * 24)
    kinds = [GroupType(1.0 + index / 10, 50.0) for index in range(8)]
    with pytest.raises(OutOfTime):
        PipelineSearch(work, kinds, 4).best(math.inf, lambda: False)
