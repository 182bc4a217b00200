"""What a rank reports of an iteration, and the hook around its waits."""

import pytest

from workers.trainer.parallel.errors import ImpossibleRun
from workers.trainer.parallel.placement import Placement
from workers.trainer.parallel.spec import RunSpec, plan_digest


class Witness:
    def __init__(self):
        self.calls = []

    def on_bubble_enter(self, slot, expected_s):
        self.calls.append(("enter", slot, expected_s))

    def on_bubble_exit(self, slot):
        self.calls.append(("exit", slot))

    def begin_epoch(self, epoch):
        self.calls.append(("epoch", epoch))


def test_a_rank_reports_its_chunks_and_tells_the_hook_of_every_wait(crew, layout_of):
    hook = Witness()
    run = crew(
        layout_of((4, [([0], 2), ([1], 2)])), schedule="zb-h1", microbatches=4, steps=2, hooks={1: hook}
    )
    run.finished()
    (row,) = run.of("iteration", step=2, plan_rank=1)
    order = [f"{chunk['type']}{chunk['microbatch']}" for chunk in row["chunks"]]
    placement = Placement(run.fleet.spec, run.fleet.spec.read(run.fleet.layout))
    assert order == [f"{chunk.kind}{chunk.microbatch}" for chunk in placement.schedules[0].ranks[1]]
    assert {chunk["stage"] for chunk in row["chunks"]} == {1}
    assert all(chunk["seconds"] >= 0 and chunk["tokens"] > 0 for chunk in row["chunks"])
    waits = [bubble["before"] for bubble in row["bubbles"]]
    assert waits == ["F0", "F1", "F2", "F3", None]
    assert hook.calls[0] == ("epoch", 0)
    kinds = [call[:2] for call in hook.calls[1:]]
    assert kinds[::2] == [("enter", slot) for _, slot in kinds[::2]]
    assert [slot for _, slot in kinds[::2]] == [slot for _, slot in kinds[1::2]]
    assert len(kinds) == 2 * 2 * len(waits)
    # the second iteration knows how long the first one waited
    assert all(call[2] > 0 for call in hook.calls[1 + len(kinds) // 2 :] if call[0] == "enter")


def test_tokens_and_samples_are_reported_by_one_rank_per_replica(crew, layout_of):
    run = crew(layout_of((5, [([0, 1], 2), ([2], 2)]), (3, [([3], 4)])), steps=1)
    run.finished()
    rows = {row["plan_rank"]: row for row in run.of("iteration", step=1)}
    assert [bool(rows[rank]["sequences"]) for rank in range(4)] == [True, False, False, True]
    assert [rows[rank]["loss"] is None for rank in range(4)] == [True, True, False, False]
    assert rows[2]["loss"] == rows[3]["loss"]
    microbatches = [{chunk["microbatch"] for chunk in rows[rank]["chunks"]} for rank in range(4)]
    assert microbatches == [set(range(5)), set(range(5)), set(range(5)), {5, 6, 7}]


SPEC = {"devices": ("d0", "d1"), "folder": "x", "layers": 4, "heads": 4}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schedule": "2f2b"}, "none of 1f1b, gpipe, interleaved, zb-h1, zb-v"),
        ({"width": 30}, "multiple of the 4 heads"),
        ({"layers": 1}, "owns? 4 layers, the model has 1|own 4 layers, the model has 1"),
        ({"steps": 0}, "steps is 0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"context": 4}, "context is 4: it must be at least 8"),
        ({"devices": ("d0", "d0")}, "each may be named once"),
        ({"microbatches": 7}, "run 8 micro-batches, the instance has 7"),
        ({"workload": "mnist-cnn"}, "knows pydoc-gpt"),
    ],
)
def test_a_run_that_cannot_start_is_refused(layout_of, fields, words):
    spec = RunSpec(layout=layout_of((8, [([0], 2), ([1], 2)])), **{**SPEC, **fields})
    with pytest.raises(ImpossibleRun, match=words):
        spec.check()


@pytest.mark.parametrize(
    ("schedule", "stages", "words"),
    [
        ("interleaved", (6, [([0], 2), ([1], 1)]), "needs at least two per stage"),
        ("interleaved", (7, [([0], 2), ([1], 2)]), "multiple of the 2 stages"),
        ("zb-v", (6, [([0], 3), ([1], 1)]), "needs at least two per stage"),
    ],
)
def test_schedules_with_two_chunks_say_what_they_need(layout_of, schedule, stages, words):
    layers = sum(count for _, count in stages[1])
    spec = RunSpec(
        **{**SPEC, "layers": layers}, layout=layout_of(stages), schedule=schedule, microbatches=stages[0]
    )
    with pytest.raises(ImpossibleRun, match=words):
        spec.check()


def test_a_run_survives_the_way_through_json_and_refuses_what_it_does_not_know(layout_of):
    spec = RunSpec(layout=layout_of((8, [([0], 2), ([1], 2)])), **SPEC)
    assert RunSpec.from_json(spec.to_json()) == spec
    with pytest.raises(ImpossibleRun, match="colour: is not a field"):
        RunSpec.from_json({**spec.to_json(), "colour": 1})
    with pytest.raises(ImpossibleRun, match="devices: is missing"):
        RunSpec.from_json({"layout": {}, "folder": ""})


def test_the_digest_covers_the_replicas_alone(layout_of):
    one, other = layout_of((8, [([0], 4)])), layout_of((8, [([1], 4)]))
    assert plan_digest(one) == plan_digest({**one, "idle": ["d1"]}) != plan_digest(other)
