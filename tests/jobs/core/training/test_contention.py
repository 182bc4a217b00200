"""Iterations on shared cores: exact cases, and the layouts that are best there."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.layout.instance import Device, Instance, Layer, Layout, Replica
from jobs.core.layout.instance import Stage as Group
from jobs.core.pipeline.makespan import one_f_one_b_makespan
from jobs.core.training.contention import Pipeline, Stage, Worker, contended_makespan
from jobs.core.training.sharing import SharedCores, neighbours

seconds = st.floats(0.1, 5.0)


def pipeline(rows, microbatches, core=lambda i: i, **worker):
    stages = tuple(Stage((Worker(core(i), **worker),), f, b) for i, (f, b) in enumerate(rows))
    return Pipeline(stages, microbatches)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=4), st.integers(1, 6))
def test_with_a_core_for_each_rank_it_is_the_makespan_of_one_f_one_b(rows, microbatches):
    forward_s, backward_s = zip(*rows, strict=True)
    expected = one_f_one_b_makespan(forward_s, backward_s, microbatches)
    assert contended_makespan([pipeline(rows, microbatches)]) == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 3))
def test_one_core_for_all_takes_the_sum_of_all_work(rows, microbatches, replicas):
    """Somebody always has work until all is done, so no order and no wait matters."""
    work = replicas * microbatches * sum(f + b for f, b in rows)
    pipelines = [pipeline(rows, microbatches, core=lambda _: "c")] * replicas
    assert contended_makespan(pipelines) == pytest.approx(work)


def test_a_rank_that_rests_leaves_its_core_to_others_and_one_with_more_work_does_not():
    healthy, rows = Pipeline((Stage((Worker("c"),), 1.0, 2.0),), 4), [(1.0, 2.0)]
    rests = pipeline(rows, 4, core=lambda _: "c", rest=1.0)
    works = pipeline(rows, 4, core=lambda _: "c", work=2.0)
    alone = contended_makespan([rests])
    assert alone == contended_makespan([works]) == pytest.approx(24.0)
    # Beside a healthy pipeline of 12 s the one hides it in its rests, the other adds up.
    assert contended_makespan([works, healthy]) == pytest.approx(36.0)
    assert contended_makespan([rests, healthy]) < 36.0


def test_a_group_is_done_when_its_slowest_member_is():
    group = Stage((Worker("a"), Worker("b", work=3.0)), 1.0, 1.0)
    assert contended_makespan([Pipeline((group,), 2)]) == pytest.approx(12.0)


def four_ranks(speeds=(1.0, 1.0, 1.0, 1.0)):
    """Two replicas of two stages with four equal layers, on two cores that the replicas share."""
    current = Layout(tuple(Replica(4, (Group((f"r{a}",), 2), Group((f"r{a + 1}",), 2))) for a in (0, 2)))
    return Instance(
        devices=tuple(Device(f"r{i}", "n", speed, 100.0) for i, speed in enumerate(speeds)),
        layers=(Layer(1.0, 2.0, 1.0),) * 4,
        heads=4, sizes=(1,), efficiency={1: 1.0}, replicas=2, microbatches=8, current=current,
    )  # fmt: skip


CORES = {f"r{i}": f"cpu{i % 2}" for i in range(4)}


def test_one_replica_works_in_the_bubbles_of_the_other_where_their_stages_lie_on_opposite_cores():
    shared = SharedCores(four_ranks(), CORES)
    snake = SharedCores(four_ranks(), {"r0": "cpu0", "r1": "cpu1", "r2": "cpu1", "r3": "cpu0"})
    work = 8 * 4 * 3.0 / 2  # of two cores that never wait
    assert shared.time(shared.instance.current) > 1.2 * work
    assert shared.time(shared.best([shared.instance.current])) == pytest.approx(work)
    assert snake.time(snake.instance.current) == pytest.approx(work)
    assert snake.best([snake.instance.current]) == snake.instance.current


def test_a_rank_that_rests_is_relieved_and_the_move_pays():
    instance = four_ranks((1.0, 0.25, 1.0, 1.0))
    shared = SharedCores(instance, CORES, ["r1"])
    before = shared.time(instance.current)
    best = shared.best([instance.current])
    assert shared.time(best) < 0.7 * before
    assert sum(row.microbatches for row in best.replicas) == 8
    assert all(sum(stage.layers for stage in row.stages) == 4 for row in best.replicas)


def test_of_plans_about_as_fast_the_one_that_leaves_least_to_a_slow_rank_is_chosen():
    instance = four_ranks((1.0, 0.1, 1.0, 1.0))
    shared = SharedCores(instance, CORES, ["r1"])
    best = shared.best([instance.current])
    assert "r1" not in best.devices()


def test_layouts_one_move_away_keep_every_layer_and_micro_batch():
    current = four_ranks().current
    found = list(neighbours(current))
    assert len(found) == len(set(found))
    for layout in found:
        assert sum(row.microbatches for row in layout.replicas) == 8
        assert all(sum(stage.layers for stage in row.stages) == 4 for row in layout.replicas)
        devices = [name for row in layout.replicas for stage in row.stages for name in stage.devices]
        assert len(devices) == len(set(devices))


def test_a_dead_device_is_in_no_layout_that_is_chosen():
    instance = replace(four_ranks((1.0, 0.0, 1.0, 1.0)))
    shared = SharedCores(instance, CORES)
    start = Layout((Replica(3, (Group(("r0",), 4),)), Replica(5, instance.current.replicas[1].stages)))
    assert shared.best([instance.current]) is None
    best = shared.best([instance.current, start])
    assert best is not None
    assert "r1" not in best.devices()
