"""Sharded checkpoints: any layout reads what any layout wrote; damage is found; the model is exported."""

import json
import shutil
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemReader

from jobs.core.layout.transfer import Box
from workers.trainer.parallel.checkpoint import CheckpointWriter, load, newest
from workers.trainer.parallel.data import load_corpus
from workers.trainer.parallel.errors import CheckpointError
from workers.trainer.parallel.state import ShardedState
from workers.trainer.workloads.networks import CharacterTransformer

UNEVEN = [(5, [([0, 1], 1), ([2], 3)]), (3, [([3], 2), ([4, 5], 2)])]


@pytest.fixture(scope="module")
def trained(module_crew, layout_of, tmp_path_factory):
    """A finished run on six ranks in an uneven layout, its state still in memory.

    Before it, another launcher died over its last checkpoint.
    """
    root = tmp_path_factory.mktemp("trained")
    folder = root / "checkpoints" / "step-00000004-epoch-0000"
    folder.mkdir(parents=True)
    for rank in range(6):
        (folder / f"part-{rank}.json").write_text('{"launch": "another", "rows": [], "files": {}}')
    run = module_crew(layout_of(*UNEVEN), steps=4, checkpoint_every=1, checkpoints_kept=2, folder=str(root))
    run.finished()
    return run


def whole_state(spec, boxes=None):
    boxes = boxes or [Box(layer, Fraction(0), Fraction(1)) for layer in range(spec.layers)]
    return ShardedState(spec, load_corpus(spec.context).symbols, boxes, torch.device("cpu"))


def test_any_cut_reads_exactly_what_was_written(trained):
    spec, folder = trained.fleet.spec, newest(trained.fleet.spec.folder)
    written = trained.state()
    for boxes in (None, [Box(1, Fraction(1, 4), Fraction(3, 4))], [Box(0, Fraction(2, 3), Fraction(1))]):
        state = whole_state(spec, boxes)
        progress = load(state, folder)
        assert progress == trained.holdings()[0].progress
        for kind, tensors in written.items():
            for name, tensor in state.tensors.items():
                box = state.boxes[tensor.layer]
                part = tensors[name]
                if tensor.split is not None:
                    size = tensor.shape[tensor.split]
                    first, last = int(size * box.start), int(size * box.end)
                    part = part.narrow(tensor.split, first, last - first)
                assert torch.equal(state.views[kind][name], part)


def same(one, other):
    return all(torch.equal(one[kind][name], other[kind][name]) for kind in one for name in one[kind])


def test_only_the_last_checkpoints_stay_and_other_tools_can_read_them(trained):
    folders = sorted(Path(trained.fleet.spec.folder).glob("checkpoints/step-*"))
    assert [path.name for path in folders] == ["step-00000003-epoch-0000", "step-00000004-epoch-0000"]
    metadata = FileSystemReader(folders[-1]).read_metadata()
    assert metadata.state_dict_metadata["exp_avg.head.weight"].size == torch.Size([103, 16])
    assert (
        trained.of("checkpoint")[-1]["digest"]
        == json.loads((folders[-1] / "complete.json").read_text())["digest"]
    )


def test_the_exported_model_is_pydoc_gpts_own(trained):
    path = Path(trained.of("finished")[0]["path"])
    tensors = load_file(path)
    model = CharacterTransformer(103, 32, 16, 4)
    model.load_state_dict(tensors)
    assert all(torch.equal(tensors[name], value) for name, value in trained.tensors("weight").items())
    assert json.loads(path.with_suffix(".json").read_text())["step"] == 4


DAMAGE = {
    "__2_0.distcp": (lambda content: content[:-40] + b"x" * 40, "is damaged"),
    "part-1.json": (lambda content: content.replace(b'"bytes": ', b'"bytes": 1', 1), "not those it was"),
    "complete.json": (lambda content: content[:-40], "cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_refused_by_name(trained, tmp_path, name):
    folder = tmp_path / "copy"
    shutil.copytree(newest(trained.fleet.spec.folder), folder)
    damage, words = DAMAGE[name]
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    with pytest.raises(CheckpointError, match=words):
        load(whole_state(trained.fleet.spec), str(folder))


def test_a_checkpoint_of_another_model_is_refused(trained):
    spec = trained.fleet.spec
    wider = type(spec)(**{**vars(spec), "width": 32})
    with pytest.raises(CheckpointError, match=r"no weight\.symbols\.weight of shape \(103, 32\)"):
        load(whole_state(wider), newest(spec.folder))


def test_an_incomplete_checkpoint_does_not_count(tmp_path):
    (tmp_path / "checkpoints" / "step-00000009-epoch-0000").mkdir(parents=True)
    assert newest(str(tmp_path)) is None


@pytest.mark.parametrize(("known", "step"), [(None, 30), (35, 30), (25, 20), (20, 20), (5, 30), (0, None)])
def test_one_beyond_what_is_written_down_counts_only_where_there_is_no_other(tmp_path, known, step):
    for number in (20, 30):
        folder = tmp_path / "checkpoints" / f"step-{number:08d}-epoch-0001"
        folder.mkdir(parents=True)
        (folder / "complete.json").write_text("{}")
    found = newest(str(tmp_path), known)
    assert found is None if step is None else f"step-{step:08d}" in found


@pytest.mark.parametrize(
    ("known", "kept"),
    [(None, [40, 50]), (0, [40, 50]), (10, [10, 40, 50]), (25, [20, 40, 50]), (50, [40, 50])],
)
def test_the_last_one_that_is_written_down_is_not_deleted(tmp_path, known, kept):
    writer = CheckpointWriter(str(tmp_path), 2, 1.0, "launch", lambda: False, lambda: known)
    for number in (10, 20, 30, 40, 50):
        folder = tmp_path / "checkpoints" / f"step-{number:08d}-epoch-0001"
        folder.mkdir(parents=True)
        (folder / "complete.json").write_text("{}")
    writer.prune(folder)
    left = sorted((tmp_path / "checkpoints").iterdir())
    assert [int(path.name.split("-")[1]) for path in left] == kept


def test_a_finished_run_that_is_started_again_only_exports_its_model(crew, layout_of, trained, tmp_path):
    folder = tmp_path / "again"
    shutil.copytree(trained.fleet.spec.folder, folder)
    path = Path(newest(str(folder)))
    before = {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.iterdir()}
    (folder / "model.safetensors").unlink()
    run = crew(layout_of((8, [([0], 2), ([1], 2)])), steps=4, folder=str(folder))
    assert Path(run.finished()).exists()
    assert run.of("iteration") == []
    assert {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.iterdir()} == before
    assert same(run.state(), trained.state())
