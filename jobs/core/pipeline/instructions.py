"""The instructions of a pipeline schedule: which rank runs which chunk of work, in which order.

Words used throughout: a *rank* is one pipeline position (a tensor-parallel group); a rank holds one or
more *model chunks*; all model chunks of a pipeline, in the order of the layers, are its *virtual stages*.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a chunk of work computes."""

    FORWARD = "F"
    BACKWARD = "B"  # the whole backward pass, or the input gradient alone where W is separate
    WEIGHT = "W"


class Placement(StrEnum):
    """How virtual stages lie on ranks."""

    LOOP = "loop"  # 0 1 2 3 | 4 5 6 7 for ranks 0 1 2 3
    VEE = "vee"  # 0 1 2 3 | 7 6 5 4 for ranks 0 1 2 3


class Chunk(NamedTuple):
    """One instruction of a rank: run `kind` of a micro-batch through one of the rank's model chunks."""

    kind: Kind
    microbatch: int
    model_chunk: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """The instruction lists of one pipeline, one list per rank, each in execution order."""

    name: str
    ranks: tuple[tuple[Chunk, ...], ...]
    microbatches: int
    model_chunks: int = 1
    placement: Placement = Placement.LOOP
    splits_backward: bool = False

    @property
    def stages(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def virtual_stages(self) -> int:
        """Number of model chunks of the whole pipeline."""
        return len(self.ranks) * self.model_chunks

    def virtual_stage(self, rank: int, model_chunk: int) -> int:
        """Position of a rank's model chunk in the order of the layers."""
        if self.placement is Placement.VEE and model_chunk % 2:
            return (model_chunk + 1) * self.stages - 1 - rank
        return model_chunk * self.stages + rank

    def home(self, virtual_stage: int) -> tuple[int, int]:
        """Rank and model chunk that hold a virtual stage; the inverse of `virtual_stage`."""
        model_chunk, offset = divmod(virtual_stage, self.stages)
        if self.placement is Placement.VEE and model_chunk % 2:
            return self.stages - 1 - offset, model_chunk
        return offset, model_chunk

    def receives_from(self, rank: int, chunk: Chunk) -> tuple[int, int] | None:
        """Rank and model chunk whose output this instruction needs; None if it needs none.

        A peer equal to `rank` means the tensor is already there and nothing is sent.
        """
        return self._neighbour(rank, chunk, -1)

    def sends_to(self, rank: int, chunk: Chunk) -> tuple[int, int] | None:
        """Rank and model chunk that need this instruction's output; None if nobody does."""
        return self._neighbour(rank, chunk, 1)

    def _neighbour(self, rank: int, chunk: Chunk, step: int) -> tuple[int, int] | None:
        if chunk.kind is Kind.WEIGHT:
            return None
        towards = step if chunk.kind is Kind.FORWARD else -step
        other = self.virtual_stage(rank, chunk.model_chunk) + towards
        return self.home(other) if 0 <= other < self.virtual_stages else None
