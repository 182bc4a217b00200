"""Boxes in the words of PyTorch's distributed checkpoints: who writes which chunk, who reads which."""

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from jobs.core.layout.transfer import STATE_TENSORS, Box
from workers.trainer.parallel.errors import CheckpointError
from workers.trainer.parallel.placement import Placement
from workers.trainer.parallel.state import ShardedState
from workers.trainer.parallel.tensors import LogicalTensor, region, shape_in


@dataclass(frozen=True)
class Chunk:
    """A part of a tensor in a checkpoint: the tensor's name there and shape, the part's place and size."""

    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Chunk":
        """Read plain data."""
        return cls(data["name"], tuple(data["shape"]), tuple(data["offsets"]), tuple(data["sizes"]))


def chunk(kind: str, tensor: LogicalTensor, box: Box) -> Chunk:
    """The part of one kind of a tensor (weight or a moment) inside a box."""
    offsets = [0] * len(tensor.shape)
    offsets[tensor.split or 0] = region(tensor, box.start, box.end).start
    return Chunk(f"{kind}.{tensor.name}", tensor.shape, tuple(offsets), shape_in(tensor, box))


def chunks_of(placement: Placement, rank: int, layers: Sequence[Sequence[LogicalTensor]]) -> list[Chunk]:
    """What a rank writes: replicas take the layers in turn, and what all shards hold the first one writes."""
    seat = placement.seats[rank]
    replicas = len(placement.groups)
    return [
        chunk(kind, tensor, box)
        for box in placement.boxes(rank)
        if box.layer % replicas == seat.replica
        for tensor in layers[box.layer]
        if tensor.split is not None or seat.shard == 0
        for kind in STATE_TENSORS
    ]


def read_items(state: ShardedState, metadata: Metadata) -> list[ReadItem]:
    """What must be read to fill a state; CheckpointError names a tensor missing or of another shape."""
    items: list[ReadItem] = []
    for tensor in state.tensors.values():
        for kind in STATE_TENSORS:
            own = chunk(kind, tensor, state.boxes[tensor.layer])
            stored = metadata.state_dict_metadata.get(own.name)
            if stored is None or tuple(stored.size) != own.shape:  # type: ignore[union-attr]
                raise CheckpointError(f"the checkpoint has no {own.name} of shape {own.shape}")
            wanted = ChunkStorageMetadata(torch.Size(own.offsets), torch.Size(own.sizes))
            items += create_read_items_for_chunk_list(own.name, stored, [wanted])  # type: ignore[arg-type]
    return items


def _split_name(name: str) -> tuple[str, str]:
    kind, _, tensor = name.partition(".")
    return kind, tensor


class WritePlanner(SavePlanner):
    """Writes chunks of a state."""

    def __init__(self, chunks: list[Chunk], state: ShardedState) -> None:
        self.chunks, self.state = chunks, state

    def set_up_planner(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to prepare: the chunks are known."""

    def create_local_plan(self) -> SavePlan:
        """One item per chunk."""
        properties = TensorProperties(dtype=torch.float32)
        return SavePlan(
            [
                WriteItem(
                    MetadataIndex(row.name, torch.Size(row.offsets)),
                    WriteItemType.SHARD,
                    tensor_data=TensorWriteData(
                        ChunkStorageMetadata(torch.Size(row.offsets), torch.Size(row.sizes)),
                        properties,
                        torch.Size(row.shape),
                    ),
                )
                for row in self.chunks
            ]
        )

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Every rank's plan stands: their chunks do not overlap."""
        raise NotImplementedError("the placement is the global plan")

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """The plan as it is."""
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """The tensor behind an item; a rank's box is exactly what it writes."""
        kind, name = _split_name(write_item.index.fqn)
        return self.state.views[kind][name]


class ReadPlanner(LoadPlanner):
    """Reads into the views of a state."""

    def __init__(self, items: list[ReadItem], state: ShardedState) -> None:
        self.items, self.state = items, state

    def set_up_planner(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to prepare: the items are known."""

    def create_local_plan(self) -> LoadPlan:
        """All items."""
        return LoadPlan(self.items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Every rank reads for itself."""
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """The plan as it is."""
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """A checkpoint holds tensors only."""
        raise CheckpointError(f"{read_item.dest_index.fqn} is no tensor")

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The part of a view an item fills; destinations count from the start of the wanted chunk."""
        kind, name = _split_name(read_item.dest_index.fqn)
        view = self.state.views[kind][name]
        for dim, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            view = view.narrow(dim, start, length)
        return view

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """The view was filled in place."""
