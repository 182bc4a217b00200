"""All ranks of a group must issue the same collectives in the same order: compared before the first of them.

The digests go through the process group's key-value store and not through a collective, which could itself
hang or be mistaken for another one.
"""

from collections.abc import Mapping
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from jobs.core.errors import JobError
from workers.trainer.overlap.worlds import ranks_of_group

TIMEOUT_S = 120.0
_compared: dict[tuple[int, ...], int] = {}


class PlansDiffer(JobError):
    """Ranks hold different plans; running them would exchange wrong tensors or hang."""


def agree(digests: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> None:
    """Compare this rank's digests with those of the other ranks of each group.

    Every rank has to call this as often and for the same groups; the n-th calls are compared with each other.

    Raises:
        PlansDiffer: a rank has another digest, or none within the time.
    """
    if not digests or not dist.is_initialized() or dist.get_backend() == "fake":
        return
    store, me = _get_default_store(), dist.get_rank()
    for group in sorted(digests, key=ranks_of_group):
        ranks = ranks_of_group(group)
        number = _compared[ranks] = _compared.get(ranks, -1) + 1
        prefix = f"forebay/plan/{'-'.join(map(str, ranks))}/{number}"
        store.set(f"{prefix}/{me}", digests[group])
        for other in ranks:
            try:
                store.wait([f"{prefix}/{other}"], timedelta(seconds=timeout_s))
            except dist.DistError as error:
                raise PlansDiffer(f"rank {other} has no plan number {number} for group {group}") from error
            if store.get(f"{prefix}/{other}").decode() != digests[group]:
                raise PlansDiffer(
                    f"ranks {me} and {other} would issue different collectives in group {group};"
                    " nothing was run"
                )
