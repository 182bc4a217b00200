"""A world of ranks in one process: PyTorch's fake backend knows shapes of collectives and moves nothing."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import GroupName, _resolve_process_group
from torch.testing._internal.distributed.fake_pg import FakeStore

from jobs.core.overlap.errors import ProgramRefused
from jobs.core.overlap.program import Groups

MOST_RANKS = 4096


def world_size(groups: Groups) -> int:
    """How many ranks the groups speak of.

    Raises:
        ProgramRefused: a group is no list of ranks, or there is none.
    """
    if not isinstance(groups, Mapping) or not groups:
        raise ProgramRefused("groups: at least one group with its ranks is required")
    ranks = [rank for name, members in groups.items() for part in _parts(name, members) for rank in part]
    return max(ranks) + 1


def _parts(name: object, members: Sequence[int] | Sequence[Sequence[int]]) -> list[list[int]]:
    """The rank lists of a group."""
    if not isinstance(name, str) or not name:
        raise ProgramRefused("groups: a group's name has to be a text")
    if not isinstance(members, Sequence) or isinstance(members, str) or not members:
        raise ProgramRefused(f"groups: {name} has to be a list of ranks")
    listed: list[Any] = list(members) if isinstance(members[0], Sequence) else [members]
    for part in listed:
        valid = isinstance(part, Sequence) and all(
            isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < MOST_RANKS for rank in part
        )
        if not valid or len(set(part)) != len(part) or not part:
            raise ProgramRefused(f"groups: {name} has to list whole numbers from 0 up, each once")
    return [sorted(part) for part in listed]


def group_of_rank(name: str, members: Sequence[int] | Sequence[Sequence[int]], rank: int) -> list[int]:
    """The ranks that form a group with a rank: as listed, or by the same pattern elsewhere.

    Raises:
        ProgramRefused: a rank is in no group and the listed ranks have no even distance to go by.
    """
    parts = _parts(name, members)
    for part in parts:
        if rank in part:
            return part
    first = parts[0]
    distance = first[1] - first[0] if len(first) > 1 else 1
    even = all(b - a == distance for a, b in zip(first, first[1:], strict=False))
    if len(parts) > 1 or not even:
        raise ProgramRefused(f"groups: {name} leaves rank {rank} out; list the ranks of every group")
    block = distance * len(first)
    base = rank // block * block + rank % distance
    return [base + index * distance for index in range(len(first))]


@contextmanager
def simulated_world(groups: Groups, rank: int) -> Iterator[None]:
    """Be one rank of a world that exists only here.

    Raises:
        ProgramRefused: this process is already part of a real world, or the groups are malformed.
    """
    if dist.is_initialized():
        raise ProgramRefused("the process is part of another process group already")
    size = world_size(groups)
    mine = {name: group_of_rank(name, members, rank) for name, members in groups.items()}
    size = max(size, *(max(ranks) + 1 for ranks in mine.values()))
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        register_groups(groups, size)
        yield
    finally:
        dist.destroy_process_group()


def register_groups(groups: Groups, size: int) -> None:
    """Make every group known to functional collectives under its own name; collective over the world."""
    rank = dist.get_rank()
    for name, members in groups.items():
        made = sorted({tuple(group_of_rank(name, members, other)) for other in range(size)})
        for ranks in made:
            group = dist.new_group(list(ranks))
            if rank in ranks:
                torch._C._distributed_c10d._register_process_group(GroupName(name), group)


def ranks_of_group(name: str) -> tuple[int, ...]:
    """The ranks of a group that the present world knows by name."""
    return tuple(dist.get_process_group_ranks(_resolve_process_group(GroupName(name))))
