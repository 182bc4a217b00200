"""Moving a running job to another layout: the state's bits, the samples, and what comes after."""

import shutil
from pathlib import Path

import pytest
import torch

from workers.trainer.parallel import moving
from workers.trainer.parallel.data import Packer, load_corpus
from workers.trainer.parallel.errors import ImpossibleRun
from workers.trainer.parallel.spec import plan_digest

TWO_BY_TWO = [(4, [([0], 2), ([1], 2)]), (4, [([2], 2), ([3], 2)])]
MOVES = {
    "layers and micro-batches": [(5, [([0], 3), ([1], 1)]), (3, [([2], 1), ([3], 3)])],
    "a group of two, one replica": [(8, [([3, 1], 1), ([0], 2), ([2], 1)])],
    "one replica of four shards": [(8, [([2, 0, 3, 1], 4)])],
    "a device left idle": [(5, [([0], 2), ([1], 2)]), (3, [([3], 4)])],
}


def expected_samples(spec, steps):
    batches, _ = Packer(load_corpus(spec.context), spec.microbatch_tokens, spec.seed).pack(
        0, spec.microbatches * steps
    )
    return [sample for batch in batches for sample in batch]


def same(one, other):
    return all(torch.equal(one[kind][name], other[kind][name]) for kind in one for name in one[kind])


def test_no_bit_changes_on_a_way_through_many_layouts(crew, layout_of):
    run = crew(layout_of(*TWO_BY_TWO), steps=2)
    run.finished()
    before, progress = run.state(), run.holdings()[0].progress
    for move in [*MOVES.values(), TWO_BY_TWO]:
        epoch = run.fleet.reconfigure(layout_of(*move))
        run.resumed(epoch, 4)
        run.until(lambda: len(run.of("finished")) > epoch)  # noqa: B023
        after = run.state()
        assert same(before, after)
        assert {name: len(rows) for name, rows in after.items()} == {n: len(r) for n, r in before.items()}
        assert {h.progress for h in run.holdings().values() if h.state is not None} == {progress}
    assert run.of("resumed", epoch=1)[0]["restored"] is None
    assert len(run.committed()) == 2


def test_chunks_that_lie_apart_on_a_rank_move_as_well_piece_by_piece(crew, layout_of, monkeypatch):
    monkeypatch.setattr(moving, "CHUNK_FLOATS", 1000)
    run = crew(layout_of((8, [([0], 2), ([1, 2], 2)])), schedule="zb-v", steps=1)
    run.finished()
    before = run.state()
    epoch = run.fleet.reconfigure(layout_of((5, [([1], 4)]), (3, [([2], 2), ([0], 2)])))
    run.resumed(epoch, 3)
    assert same(before, run.state())
    assert sorted(run.holdings()[2].state.boxes) == [0, 3]


def test_a_moved_run_goes_on_as_one_started_there_from_the_same_state(crew, layout_of, tmp_path):
    known = {"steps": 8, "checkpoint_every": 1, "checkpoints_kept": 50, "dropout": 0.1}
    run = crew(layout_of(*TWO_BY_TWO), **known)
    run.reached(2)
    run.fleet.reconfigure(layout_of(*MOVES["a group of two, one replica"]))
    run.finished()
    step = run.of("resumed", epoch=1)[0]["step"]
    assert 2 <= step < 8
    (folder,) = Path(run.fleet.spec.folder).glob(f"checkpoints/step-{step:08d}-epoch-0000")
    shutil.copytree(folder, tmp_path / "run-1" / "checkpoints" / folder.name)
    fresh = crew(layout_of(*MOVES["a group of two, one replica"]), **known)
    fresh.finished()
    assert fresh.of("resumed")[0]["restored"].endswith(folder.name)
    assert run.losses()[step:] == fresh.losses()
    assert same(run.state(), fresh.state())
    assert sorted(run.samples()) == sorted(expected_samples(run.fleet.spec, 8))


def test_a_layout_that_cannot_run_is_refused_before_any_rank_hears_of_it(crew, layout_of):
    run = crew(layout_of(*TWO_BY_TWO), steps=1)
    with pytest.raises(ImpossibleRun, match="owns? 3 layers"):
        run.fleet.reconfigure(layout_of((8, [([0], 2), ([1], 1)])))
    with pytest.raises(ImpossibleRun, match="groups that do: 1, 2, 4"):
        run.fleet.reconfigure(layout_of((8, [([0, 1, 2], 4)])))
    with pytest.raises(ImpossibleRun, match="is not a device"):
        run.fleet.reconfigure(layout_of((8, [([9], 4)])))
    with pytest.raises(ImpossibleRun, match="run 7 micro-batches"):
        run.fleet.reconfigure(layout_of((7, [([0], 4)])))
    assert run.fleet.epoch == 0
    run.finished()


def test_a_rank_that_understands_another_plan_stops_the_change_and_nothing_is_lost(crew, layout_of):
    run = crew(layout_of(*TWO_BY_TWO), steps=2)
    run.finished()
    before = run.state()
    plan, other = layout_of(*MOVES["one replica of four shards"]), layout_of(*MOVES["a device left idle"])
    order = {"kind": "reconfigure", "epoch": 1, "digest": plan_digest(plan), "survivors": [0, 1, 2, 3]}
    run.fleet.epoch = 1
    for rank, process in run.fleet._ranks.items():
        process.command({**order, "plan": other if rank == 2 else plan})
    while len(run.of("failed", epoch=1)) < 4:
        run.look()
    assert {row["reason"] for row in run.of("failed")} == {"the plan's digest differs on ranks 2"}
    run.events.clear()
    run.resumed(run.fleet.reconfigure(plan), 4)
    assert same(before, run.state())
