"""The event simulator: exact times, named bubbles, deadlocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.errors import ImpossibleSchedule
from jobs.core.pipeline import SCHEDULES, Chunk, Durations, Kind, Schedule, build_schedule, simulate

F, B = Kind.FORWARD, Kind.BACKWARD


def random_run(draw):
    name = draw(st.sampled_from(sorted(SCHEDULES)))
    stages = draw(st.integers(1, 5))
    microbatches = draw(st.integers(1, 8)) * (stages if name == "interleaved" else 1)
    schedule = build_schedule(name, stages, microbatches)
    seconds = st.lists(
        st.integers(0, 8).map(float), min_size=schedule.virtual_stages, max_size=schedule.virtual_stages
    )
    durations = Durations(draw(seconds), draw(seconds), draw(seconds))
    return schedule, durations, float(draw(st.integers(0, 3)))


runs = st.composite(random_run)()


def test_two_unequal_stages_are_timed_by_hand():
    timeline = simulate(build_schedule("1f1b", 2, 2), Durations([1.0, 2.0], [2.0, 3.0]), transfer_s=0.5)
    assert [(s.chunk.kind.value, s.chunk.microbatch, s.start, s.end) for s in timeline.slots[0]] == [
        ("F", 0, 0.0, 1.0),
        ("F", 1, 1.0, 2.0),
        ("B", 0, 7.0, 9.0),
        ("B", 1, 12.0, 14.0),
    ]
    assert [(s.start, s.end) for s in timeline.slots[1]] == [(1.5, 3.5), (3.5, 6.5), (6.5, 8.5), (8.5, 11.5)]
    assert timeline.makespan == 14.0
    assert [tuple(bubble) for bubble in timeline.bubbles(0)] == [
        ("stall", 2.0, 7.0, Chunk(B, 0)),
        ("stall", 9.0, 12.0, Chunk(B, 1)),
    ]
    assert [tuple(bubble) for bubble in timeline.bubbles(1)] == [
        ("fill", 0.0, 1.5, Chunk(F, 0)),
        ("drain", 11.5, 14.0, None),
    ]


@given(runs)
def test_busy_time_and_bubbles_fill_the_makespan(run):
    schedule, durations, transfer_s = run
    timeline = simulate(schedule, durations, transfer_s)
    for rank in range(schedule.stages):
        idle = sum(bubble.end - bubble.start for bubble in timeline.bubbles(rank))
        assert timeline.busy_s(rank) + idle == timeline.makespan


@given(runs)
def test_no_chunk_starts_before_what_it_needs_has_arrived(run):
    schedule, durations, transfer_s = run
    timeline = simulate(schedule, durations, transfer_s)
    ends = {(rank, slot.chunk): slot.end for rank, row in enumerate(timeline.slots) for slot in row}
    for rank, row in enumerate(timeline.slots):
        assert tuple(slot.chunk for slot in row) == schedule.ranks[rank]
        assert all(before.end <= after.start for before, after in zip(row, row[1:], strict=False))
        for slot in row:
            peer = schedule.receives_from(rank, slot.chunk)
            if peer is not None:
                arrival = ends[peer[0], slot.chunk._replace(model_chunk=peer[1])]
                assert slot.start >= arrival + (transfer_s if peer[0] != rank else 0.0)
            if slot.chunk.kind is not F:
                earlier = F if slot.chunk.kind is B else B
                assert slot.start >= ends[rank, slot.chunk._replace(kind=earlier)]


@given(runs)
def test_every_chunk_starts_as_soon_as_something_lets_it(run):
    """The simulation is tight: a start is zero, the end of the chunk before, or an arrival."""
    schedule, durations, transfer_s = run
    timeline = simulate(schedule, durations, transfer_s)
    ends = {(rank, slot.chunk): slot.end for rank, row in enumerate(timeline.slots) for slot in row}
    for rank, row in enumerate(timeline.slots):
        clock = 0.0
        for slot in row:
            peer = schedule.receives_from(rank, slot.chunk)
            arrival = 0.0
            if peer is not None:
                arrival = ends[peer[0], slot.chunk._replace(model_chunk=peer[1])]
                arrival += transfer_s if peer[0] != rank else 0.0
            assert slot.start in (clock, arrival)
            clock = slot.end


def test_ranks_that_wait_for_each_other_are_an_error_not_a_hang():
    stuck = Schedule("stuck", ((Chunk(F, 0), Chunk(B, 0)), (Chunk(B, 0), Chunk(F, 0))), 1)
    with pytest.raises(ImpossibleSchedule, match="wait for each other"):
        simulate(stuck, Durations([1.0, 1.0], [1.0, 1.0]))


def test_durations_must_cover_every_virtual_stage():
    with pytest.raises(ImpossibleSchedule, match="durations of B: 1 given for 2"):
        simulate(build_schedule("1f1b", 2, 1), Durations([1.0, 1.0], [1.0]))
    with pytest.raises(ImpossibleSchedule, match="durations of W: 0 given"):
        simulate(build_schedule("zb-h1", 2, 1), Durations([1.0, 1.0], [1.0, 1.0]))
