"""Asynchronous sharded checkpoints in PyTorch's distributed format (DCP), and the export of the model.

A checkpoint is a folder: one data file per rank, DCP's `.metadata` for other tools, one `part-R.json` per
rank and, last of all, `complete.json`. Tensors go by their global names, so any layout can load any
checkpoint. Only the JSON files and the tensors are read back here; nothing in a folder can run code. Training
waits for a copy of the state alone; writing and collecting happen in a thread.
"""

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.storage import WriteResult

from jobs.core.layout.transfer import STATE_TENSORS
from workers.trainer.parallel.boxes_io import Chunk, ReadPlanner, WritePlanner, chunks_of, read_items
from workers.trainer.parallel.errors import CheckpointError
from workers.trainer.parallel.placement import Placement
from workers.trainer.parallel.state import Progress, ShardedState

LOOK_S = 0.01
LONGEST_WAIT_S = 0.05
COMPLETE = "complete.json"


@dataclass(frozen=True)
class Label:
    """Which checkpoint: the committed step and the epoch of the layout that writes it."""

    progress: Progress
    epoch: int
    layout: dict[str, Any]

    def folder(self, root: str) -> Path:
        """Where it lies."""
        return checkpoints_in(root) / f"step-{self.progress.step:08d}-epoch-{self.epoch:04d}"


def checkpoints_in(root: str) -> Path:
    """The folder of a run's checkpoints."""
    return Path(root) / "checkpoints"


def newest(root: str, known_step: int | None = None) -> str | None:
    """The last complete checkpoint of a run: the highest step, then the latest epoch; None without any.

    Those beyond `known_step`, up to which the run is written down, do not count: what led to them is written
    down nowhere. Only where files are lost, so that there is none up to it, does a later one stand in.
    """
    found = sorted(path.parent for path in checkpoints_in(root).glob(f"step-*/{COMPLETE}"))
    if known_step is not None:
        known = _up_to(found, known_step)
        found = known if known or not known_step else found
    return str(found[-1]) if found else None


def _up_to(folders: list[Path], step: int) -> list[Path]:
    return [path for path in folders if int(path.name.split("-")[1]) <= step]


class CheckpointWriter:
    """Writes the checkpoints of one rank, one at a time.

    `launch` names the launcher that started the ranks, `hopeless` says when waiting is pointless, `known`
    up to which step the run is written down, None where nobody writes it down.
    """

    def __init__(
        self,
        root: str,
        kept: int,
        timeout_s: float,
        launch: str,
        hopeless: Callable[[], bool],
        known: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._root, self._kept, self._hopeless, self._known = root, kept, hopeless, known
        self.timeout_s, self.launch = timeout_s, launch
        self._thread: threading.Thread | None = None
        self._given_up = threading.Event()

    def begin(
        self,
        label: Label,
        placement: Placement,
        me: int,
        state: ShardedState,
        done: Callable[[str, str], None],
    ) -> None:
        """Copy the state and write it in the background; the first working rank calls `done(path, digest)`.

        Where the last one is still being written, training waits for it: it could not go on for ever anyway.
        """
        self.wait()
        self._given_up = threading.Event()
        copy = {
            kind: flat.detach().cpu().clone() for kind, flat in state.flat.items() if kind in STATE_TENSORS
        }
        work = _Writing(self, label, placement, me, state.detached(copy), self._given_up, done)
        self._thread = threading.Thread(target=work.run, name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self, give_up: bool = False) -> None:
        """Wait for the checkpoint under way; or give it up, where it still waits for other ranks."""
        if self._thread is None:
            return
        if give_up:
            self._given_up.set()
        while self._thread.is_alive():
            self._thread.join(LONGEST_WAIT_S)
            if self._hopeless():
                self._given_up.set()
        self._thread = None

    def folder(self, label: Label) -> Path:
        """Where a checkpoint goes."""
        return label.folder(self._root)

    def is_complete(self, label: Label) -> bool:
        """Whether a checkpoint lies there whole, from an earlier launch too: it must not be written over."""
        return (self.folder(label) / COMPLETE).exists()

    def prune(self, last: Path) -> None:
        """Delete what is older than the newest few, and what never became complete.

        The last one that is written down stays: whoever starts the ranks anew goes on from there.
        """
        folders = sorted(checkpoints_in(self._root).glob("step-*"))
        older = folders[: folders.index(last)] if last in folders else []
        whole = [path for path in older if (path / COMPLETE).exists()]
        keep = set(whole[len(whole) - self._kept + 1 :] if self._kept > 1 else [])
        known = self._known()
        keep |= set(_up_to(whole, known)[-1:] if known is not None else [])
        for path in older:
            if path not in keep:
                shutil.rmtree(path, ignore_errors=True)


class _Writing:
    """One checkpoint of one rank, in a thread."""

    def __init__(
        self,
        writer: CheckpointWriter,
        label: Label,
        placement: Placement,
        me: int,
        state: ShardedState,
        given_up: threading.Event,
        done: Callable[[str, str], None],
    ) -> None:
        self.writer, self.label, self.placement, self.me = writer, label, placement, me
        self.state, self.given_up, self.done = state, given_up, done
        self.folder = writer.folder(label)

    def run(self) -> None:
        """Write this rank's part; on the first working rank collect all parts and complete the folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write_part()
            if self.me == self.placement.working[0] and self._all_parts():
                digest = self._complete()
                self.writer.prune(self.folder)
                self.done(str(self.folder), digest)
        except OSError as error:
            self.done("", f"{type(error).__name__}: {error}")

    def _write_part(self) -> None:
        planner = WritePlanner(chunks_of(self.placement, self.me, self.state.layers), self.state)
        writer = FileSystemWriter(self.folder, sync_files=True, overwrite=True)
        writer.set_up_storage_writer(False, rank=self.me, use_collectives=False)
        plan = writer.prepare_local_plan(planner.create_local_plan())
        results = writer.write_data(plan, planner).wait()
        rows = [
            {
                "name": row.index.fqn,
                "offsets": list(row.index.offset or ()),
                "file": row.storage_data.relative_path,
                "at": row.storage_data.offset,
                "bytes": row.storage_data.length,
            }
            for row in results
        ]
        files = {row["file"] for row in rows}
        sums = {name: _file_sum(self.folder / name) for name in sorted(files)}
        part = {"launch": self.writer.launch, "rows": rows, "files": sums}
        _write_json(self.folder / f"part-{self.me}.json", part)

    def _all_parts(self) -> bool:
        begun = time.monotonic()
        while not all(self._has_part(rank) for rank in self.placement.working):
            if self.given_up.wait(LOOK_S) or time.monotonic() - begun > self.writer.timeout_s:
                return False
        return True

    def _has_part(self, rank: int) -> bool:
        """Whether a rank of this launch has written its part; an earlier launch may have left its own."""
        try:
            part = json.loads((self.folder / f"part-{rank}.json").read_text())
        except FileNotFoundError:
            return False
        return bool(part["launch"] == self.writer.launch)

    def _complete(self) -> str:
        chunks = [
            chunk
            for rank in self.placement.working
            for chunk in chunks_of(self.placement, rank, self.state.layers)
        ]
        parts = _parts(self.folder, self.placement.working)
        metadata = _metadata(chunks, {})
        results = [
            [WriteResult(index, info.length, info) for index, info in _storage(part).items()]
            for part in parts
        ]
        writer = FileSystemWriter(self.folder, sync_files=True)
        writer.set_up_storage_writer(True)
        writer.finish(metadata, results)
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        content = {
            "progress": self.label.progress.to_json(),
            "epoch": self.label.epoch,
            "layout": self.label.layout,
            "ranks": list(self.placement.working),
            "chunks": [chunk.to_json() for chunk in chunks],
            "digest": digest,
        }
        _write_json(self.folder / COMPLETE, content)
        return digest


def load(state: ShardedState, folder: str) -> Progress:
    """Fill a state from a checkpoint, whatever the layout that wrote it; CheckpointError if that fails."""
    path = Path(folder)
    try:
        content = json.loads((path / COMPLETE).read_text())
        parts = _parts(path, content["ranks"])
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        if digest != content["digest"]:
            raise CheckpointError(f"checkpoint {folder}: its parts are not those it was completed with")
        storage = {index: info for part in parts for index, info in _storage(part).items()}
        metadata = _metadata([Chunk.from_json(row) for row in content["chunks"]], storage)
        planner = ReadPlanner(read_items(state, metadata), state)
        files = {storage[item.storage_index].relative_path for item in planner.items}
        for part in parts:
            for name in sorted(files & set(part["files"])):
                if _file_sum(path / name) != part["files"][name]:
                    raise CheckpointError(f"checkpoint {folder}: {name} is damaged")
        reader = FileSystemReader(path)
        reader.set_up_storage_reader(metadata, False)
        reader.read_data(planner.create_local_plan(), planner).wait()
        return Progress(**content["progress"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"checkpoint {folder} cannot be read: {type(error).__name__}: {error}"
        ) from error


def export_model(state: ShardedState, folder: str, target: Path, card: dict[str, Any]) -> str:
    """Write the whole model of a checkpoint as safetensors, through a state that holds every box whole."""
    from workers.trainer.checkpoints import write_model

    load(state, folder)
    weights: dict[str, Tensor] = state.views["weight"]
    return write_model(target, weights, card)


def _metadata(chunks: list[Chunk], storage: dict[MetadataIndex, Any]) -> Metadata:
    tensors: dict[str, TensorStorageMetadata] = {}
    for chunk in chunks:
        row = tensors.setdefault(
            chunk.name,
            TensorStorageMetadata(TensorProperties(dtype=torch.float32), torch.Size(chunk.shape), []),
        )
        row.chunks.append(ChunkStorageMetadata(torch.Size(chunk.offsets), torch.Size(chunk.sizes)))
    return Metadata(state_dict_metadata=dict(tensors), storage_data=storage)


def _storage(part: dict[str, Any]) -> dict[MetadataIndex, _StorageInfo]:
    return {
        MetadataIndex(row["name"], torch.Size(row["offsets"])): _StorageInfo(
            row["file"], row["at"], row["bytes"]
        )
        for row in part["rows"]
    }


def _parts(folder: Path, ranks: Any) -> list[dict[str, Any]]:
    return [json.loads((folder / f"part-{rank}.json").read_text()) for rank in ranks]


def _file_sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_json(path: Path, content: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    with part.open("w") as file:
        json.dump(content, file, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
