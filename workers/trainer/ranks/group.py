"""The ranks of one target as a group: gradients by the devices' own links, agreements by the network.

Agreements never wait for a GPU, so that a rank whose peer is gone learns it on its way, not in a kernel.
"""

import contextlib
import gc
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import GroupName

from workers.trainer.orders import Parted, Seat
from workers.trainer.ranks.meeting import FORM_S

WAIT_S = 1800.0  # a rank may evaluate for that long while the others wait for it
WORD_S = 2.0  # within which a rank that failed has said why, when its peers notice
REASON = "reason"
_SIGNS = ("gloo", "nccl", "connection closed", "connection reset", "peer")
T = TypeVar("T")


class RankGroup:
    """One rank's view of the group.

    Raises Parted where another rank does not come, or is gone without a word.
    """

    def __init__(self, seat: Seat, device: torch.device) -> None:
        self.rank, self.size, self._device = seat.rank, seat.ranks, device
        self._flag = torch.zeros(1)
        self._vote: Any = None
        self._store: Any = guarded(lambda: _store(seat))
        self._gloo: Any = guarded(lambda: _gloo(seat, self._store))
        self.gradients: Any = _joined(seat, self._store, self._gloo, device)
        """The process group for DistributedDataParallel."""

    def propose(self, stop: bool) -> None:
        """Begin to ask all ranks whether somebody wants to stop; `agreed` has the answer."""
        self._flag = torch.tensor([float(stop)])
        self._vote = guarded(lambda: self._reduce(self._flag, dist.ReduceOp.MAX))

    def agreed(self) -> bool:
        """Return whether a rank wanted to stop when it was last asked; the same answer on all ranks."""
        guarded(self._vote.wait)
        return bool(self._flag.item())

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks, on the CPU."""
        own = tensor.detach().to("cpu", copy=True)
        guarded(lambda: self._reduce(own, dist.ReduceOp.SUM).wait())
        return own

    def largest(self, number: int) -> int:
        """Return the largest number of any rank."""
        own = torch.tensor([number])
        guarded(lambda: self._reduce(own, dist.ReduceOp.MAX).wait())
        return int(own.item())

    def tell(self, reason: str) -> None:
        """Say why this rank fails; the first that says something is believed."""
        with contextlib.suppress(RuntimeError, dist.DistError):
            self._store.compare_set(REASON, "", reason)

    def told(self) -> str | None:
        """Return why a rank failed, waiting a moment for its word; None where there is none."""
        deadline = time.monotonic() + WORD_S
        while time.monotonic() < deadline:
            with contextlib.suppress(RuntimeError, dist.DistError):
                if self._store.check([REASON]):
                    return str(self._store.get(REASON).decode())
            time.sleep(0.05)
        return None

    def close(self) -> None:
        """Close the connections, so that whoever waits for this rank learns it at once.

        They close with the last reference: whoever made something from `gradients` drops it before.
        """
        if self._device.type == "cuda" and self.gradients is not None:
            with contextlib.suppress(RuntimeError):  # ends kernels that wait for a rank that is gone
                self.gradients._get_backend(self._device).abort()
        self._vote = self.gradients = self._gloo = None
        gc.collect()

    def _reduce(self, tensor: Tensor, operation: Any) -> Any:
        options = dist.AllreduceOptions()
        options.reduceOp = operation
        return self._gloo.allreduce([tensor], options)


def _store(seat: Seat) -> Any:
    return dist.TCPStore(
        seat.host,
        seat.port,
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=FORM_S),
    )


def _gloo(seat: Seat, store: Any) -> Any:
    # torch gives a group its address in no other way, short of the whole process's environment
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=seat.address)]
    options._timeout = timedelta(seconds=FORM_S)
    made = dist.ProcessGroupGloo(dist.PrefixStore("gloo/", store), seat.rank, seat.ranks, options)
    made._set_default_timeout(timedelta(seconds=WAIT_S))
    return made


def _joined(seat: Seat, store: Any, gloo: Any, device: torch.device) -> Any:
    """Return a group of this target alone: a process may have others, and global ones of its own."""
    kinds = dist.ProcessGroup.BackendType
    group = dist.ProcessGroup(dist.PrefixStore("group/", store), seat.rank, seat.ranks)
    group._set_default_backend(kinds.NCCL if device.type == "cuda" else kinds.GLOO)
    group._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
    if device.type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=WAIT_S)
        nccl = dist.ProcessGroupNCCL(dist.PrefixStore("nccl/", store), seat.rank, seat.ranks, options)
        group._register_backend(torch.device("cuda"), kinds.NCCL, nccl)
    group._set_group_name(GroupName(f"target at {seat.host}:{seat.port}"))
    return group


def guarded(communicate: Callable[[], T]) -> T:
    """Communicate; a peer that is gone or does not come turns into Parted."""
    try:
        return communicate()
    except (RuntimeError, dist.DistError, AttributeError) as error:
        raise Parted(_words(error)) from None


def parted(error: BaseException) -> Parted | None:
    """Return what an error of a training step means for the group; None where it is the step's own."""
    if isinstance(error, dist.DistError):
        return Parted(_words(error))
    told = isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS)
    return Parted(_words(error)) if told else None


def _words(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"the processes of its other devices cannot be reached: {lines[0][:300]}"
