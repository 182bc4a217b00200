"""The connections of one epoch: groups that reduce together, and messages between two ranks.

A group is built by its members alone, not by the whole world, under a store prefix that carries the epoch: a
dead rank or a leftover of an earlier epoch cannot hold it up. Everything is torn down at once by `close`,
which also wakes whoever waits for this rank.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from workers.trainer.parallel.errors import Abandoned

BUILD_TIMEOUT_S = 20.0


@dataclass
class Link:
    """How a rank reaches the others: the launcher's store, its own address, how long a wait may take.

    `launch` names the launcher among all that ever start this run.
    """

    store: Any
    address: str
    timeout_s: float
    launch: str

    @cached_property
    def _network(self) -> Any:
        """One listener and one thread for all groups of the process."""
        return dist.ProcessGroupGloo.create_device(hostname=self.address)

    def gloo(self, name: str, rank: int, size: int) -> Any:
        """Build a process group of `size` members on the CPU's network."""
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [self._network]
        options._timeout = timedelta(seconds=self.timeout_s)
        store = dist.PrefixStore(name, self.store)
        store.set_timeout(timedelta(seconds=min(BUILD_TIMEOUT_S, self.timeout_s)))
        return dist.ProcessGroupGloo(store, rank, size, options)

    def nccl(self, name: str, rank: int, size: int) -> Any:
        """Build a process group of `size` members on the GPUs' links."""
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=self.timeout_s)
        return dist.ProcessGroupNCCL(dist.PrefixStore(f"{name}/nccl", self.store), rank, size, options)


def compute_device(gpu: int | None) -> torch.device:
    """The device of a rank that was given a GPU of its own (an index among those it sees), or none."""
    if gpu is not None and torch.cuda.is_available() and gpu < torch.cuda.device_count():
        return torch.device("cuda", gpu)
    return torch.device("cpu")


class Group:
    """Plan ranks that reduce together. A group of one does nothing, so callers need not ask."""

    def __init__(
        self, link: Link, name: str, members: tuple[int, ...], me: int, device: torch.device
    ) -> None:
        self.members, self.size, self._device = members, len(members), device
        self._gloo: Any = None
        self._fast: Any = None
        self._sent: list[tuple[Any, Tensor]] = []
        if self.size > 1:
            place = members.index(me)
            self._gloo = guarded(lambda: link.gloo(name, place, self.size))
            self._fast = self._gloo
            if device.type == "cuda":
                self._fast = guarded(lambda: link.nccl(name, place, self.size))

    def sum(self, tensor: Tensor) -> None:
        """Replace a tensor by the sum over the group; every member gets the same bits."""
        self._reduce(tensor, dist.ReduceOp.SUM)

    def largest(self, tensor: Tensor) -> None:
        """Replace a tensor by the largest of the group, element by element."""
        self._reduce(tensor, dist.ReduceOp.MAX)

    def send(self, tensor: Tensor, target: int, tag: int) -> None:
        """Begin to send; `settle` waits until everything sent has left."""
        data = tensor.detach().cpu().contiguous()
        work = guarded(lambda: self._gloo.send([data], self.members.index(target), tag))
        self._sent.append((work, data))

    def receive(self, shape: tuple[int, ...], source: int, tag: int) -> "Arrival":
        """Begin to receive a tensor of 32-bit floats."""
        data = torch.empty(shape)
        work = guarded(lambda: self._gloo.recv([data], self.members.index(source), tag))
        return Arrival(work, data, self._device)

    def settle(self) -> None:
        """Wait until everything sent has left."""
        sent, self._sent = self._sent, []
        for work, _ in sent:
            guarded(work.wait)

    def close(self) -> None:
        """Close the connections; whoever waits for this rank learns it at once."""
        self._sent.clear()
        for backend in (self._fast, self._gloo):
            if backend is not None:
                backend.abort()
        self._gloo = self._fast = None

    def _reduce(self, tensor: Tensor, op: Any) -> None:
        if self.size == 1:
            return
        options = dist.AllreduceOptions()
        options.reduceOp = op
        backend = self._fast if tensor.device.type == "cuda" else self._gloo
        guarded(lambda: backend.allreduce([tensor], options).wait())


@dataclass
class Arrival:
    """A tensor under way."""

    work: Any
    data: Tensor
    device: torch.device

    def wait(self) -> Tensor:
        """Return the tensor when it is there."""
        guarded(self.work.wait)
        return self.data.to(self.device)


class Groups:
    """The groups of one epoch by their members; each set of members is connected once."""

    def __init__(self, link: Link, epoch: int, me: int, device: torch.device) -> None:
        self._link, self._epoch, self._me, self._device = link, epoch, me, device
        self._known: dict[tuple[int, ...], Group] = {}

    def build(self, sets: Iterable[tuple[int, ...]]) -> None:
        """Connect every set this rank is in; all ranks walk the sets in one order, so there is no ring."""
        for members in sorted(set(sets)):
            if self._me in members and members not in self._known:
                name = f"epoch/{self._epoch}/{'-'.join(map(str, members))}/"
                self._known[members] = Group(self._link, name, members, self._me, self._device)

    def of(self, members: tuple[int, ...]) -> Group:
        """The group of exactly these members."""
        return self._known[members]

    def drop(self, members: tuple[int, ...]) -> None:
        """Close one group."""
        self._known.pop(members).close()

    def close(self) -> None:
        """Close every group."""
        for group in self._known.values():
            group.close()
        self._known.clear()


def guarded(call: Callable[[], Any]) -> Any:
    """Run a communication; a peer that is gone or silent turns into Abandoned."""
    try:
        return call()
    except (RuntimeError, dist.DistError, AttributeError) as error:
        # AttributeError: the group was closed by the thread that takes commands
        raise Abandoned(f"a peer is gone: {str(error).splitlines()[0][:200]}") from None
