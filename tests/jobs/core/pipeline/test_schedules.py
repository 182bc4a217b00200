"""Schedules against their closed forms, and their instruction lists against the rules of any schedule."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.errors import ImpossibleSchedule
from jobs.core.pipeline import SCHEDULES, Chunk, Durations, Kind, build_schedule, simulate

SHAPES = [(1, 1), (1, 4), (2, 4), (4, 8), (4, 16), (8, 32)]
CHUNK_SECONDS = [(1.0, 1.0, 1.0), (1.0, 1.25, 0.75), (2.0, 3.0, 1.0)]


def uniform(schedule, forward_s, backward_s, weight_s):
    """Durations of equal stages whose whole backward is B + W; a rank's work is shared by its chunks."""
    count, parts = schedule.virtual_stages, schedule.model_chunks
    if schedule.splits_backward:
        return Durations(
            [forward_s / parts] * count, [backward_s / parts] * count, [weight_s / parts] * count
        )
    return Durations([forward_s / parts] * count, [(backward_s + weight_s) / parts] * count)


def bubble(name, stages, microbatches, seconds, **options):
    schedule = build_schedule(name, stages, microbatches, **options)
    timeline = simulate(schedule, uniform(schedule, *seconds))
    return timeline.makespan - microbatches * sum(seconds)


@pytest.mark.parametrize(("stages", "microbatches"), SHAPES)
@pytest.mark.parametrize("seconds", CHUNK_SECONDS)
class TestClosedForms:
    def test_gpipe_and_1f1b_idle_for_one_micro_batch_per_other_stage(self, stages, microbatches, seconds):
        expected = pytest.approx((stages - 1) * sum(seconds))
        assert bubble("gpipe", stages, microbatches, seconds) == expected
        assert bubble("1f1b", stages, microbatches, seconds) == expected

    @pytest.mark.parametrize("model_chunks", [1, 2, 3])
    def test_interleaving_divides_the_bubble_by_the_chunks(self, stages, microbatches, seconds, model_chunks):
        found = bubble("interleaved", stages, microbatches, seconds, model_chunks=model_chunks)
        assert found == pytest.approx((stages - 1) * sum(seconds) / model_chunks)

    def test_zb_h1_saves_two_weight_gradients_per_other_stage(self, stages, microbatches, seconds):
        forward_s, backward_s, weight_s = seconds
        expected = (stages - 1) * (forward_s + backward_s - weight_s)
        assert bubble("zb-h1", stages, microbatches, seconds) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("stages", "microbatches"), [(1, 1), (2, 3), (3, 5), (4, 7), (4, 12), (8, 15), (8, 31)]
)
def test_zb_v_never_waits_once_started_when_all_chunks_cost_the_same(stages, microbatches):
    schedule = build_schedule("zb-v", stages, microbatches)
    timeline = simulate(schedule, uniform(schedule, 2.0, 2.0, 2.0))
    assert [timeline.span_s(rank) for rank in range(stages)] == [6.0 * microbatches] * stages
    assert timeline.makespan == 6.0 * microbatches + stages - 1


@pytest.mark.parametrize(("stages", "microbatches", "makespan"), [(2, 4, 15.0), (4, 8, 33.0), (8, 32, 117.0)])
def test_uniform_1f1b_takes_the_published_times(stages, microbatches, makespan):
    schedule = build_schedule("1f1b", stages, microbatches)
    assert simulate(schedule, Durations([1.0] * stages, [2.0] * stages)).makespan == makespan


shapes = st.tuples(st.integers(1, 6), st.integers(1, 12))
names = st.sampled_from(sorted(SCHEDULES))


def legal(name, stages, microbatches, model_chunks=2):
    return build_schedule(
        name, stages, microbatches * stages if name == "interleaved" else microbatches, model_chunks
    )


@given(names, shapes, st.integers(1, 3))
def test_every_rank_runs_every_chunk_exactly_once(name, shape, model_chunks):
    schedule = legal(name, *shape, model_chunks)
    kinds = list(Kind) if schedule.splits_backward else [Kind.FORWARD, Kind.BACKWARD]
    every = Counter(
        Chunk(kind, j, c)
        for kind in kinds
        for j in range(schedule.microbatches)
        for c in range(schedule.model_chunks)
    )
    assert [Counter(rank) for rank in schedule.ranks] == [every] * schedule.stages


@given(names, shapes)
def test_what_one_rank_sends_the_other_receives(name, shape):
    schedule = legal(name, *shape)
    for rank, order in enumerate(schedule.ranks):
        for chunk in order:
            peer = schedule.sends_to(rank, chunk)
            if peer is not None:
                mirror = chunk._replace(model_chunk=peer[1])
                assert mirror in schedule.ranks[peer[0]]
                assert schedule.receives_from(peer[0], mirror) == (rank, chunk.model_chunk)


@given(names, shapes)
def test_virtual_stages_and_their_homes_are_inverse(name, shape):
    schedule = legal(name, *shape)
    homes = [schedule.home(stage) for stage in range(schedule.virtual_stages)]
    assert [schedule.virtual_stage(*home) for home in homes] == list(range(schedule.virtual_stages))


def activations_held(order, frees):
    held = peak = 0
    for chunk in order:
        held += (chunk.kind is Kind.FORWARD) - (chunk.kind is frees)
        peak = max(peak, held)
    return peak


@given(shapes)
def test_activations_held_are_those_of_the_table(shape):
    stages, microbatches = shape
    peaks = {
        name: [activations_held(rank, frees) for rank in build_schedule(name, stages, microbatches).ranks]
        for name, frees in (("gpipe", Kind.BACKWARD), ("1f1b", Kind.BACKWARD), ("zb-h1", Kind.WEIGHT))
    }
    assert peaks["gpipe"] == [microbatches] * stages
    assert peaks["1f1b"] == [min(stages - i, microbatches) for i in range(stages)]
    assert max(peaks["zb-h1"]) <= stages
    assert (
        max(activations_held(rank, Kind.WEIGHT) for rank in build_schedule("zb-v", *shape).ranks)
        <= 2 * stages
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("2f2b", 2, 2), "'2f2b' is none of 1f1b, gpipe, interleaved, zb-h1, zb-v"),
        (("1f1b", 0, 2), "at least one stage"),
        (("1f1b", 2, 0), "one micro-batch"),
        (("interleaved", 4, 6), "multiple of the 4 stages"),
        (("interleaved", 2, 2, 0), "at least 1"),
    ],
)
def test_schedules_that_cannot_be_are_refused_in_words(arguments, words):
    with pytest.raises(ImpossibleSchedule, match=words):
        build_schedule(*arguments)
