"""Real processes that train a target together, as the local executor starts them."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forebay.local.devices import DeviceProcess, may_fork, ready
from tuning.core.study import Event
from tuning.core.workload import Workload
from workers.trainer.orders import Seat, Setting, TargetOrder

PATIENCE_S = 90.0


class Team:
    """The processes of one target's ranks and everything they said."""

    def __init__(self, workload: Workload, ranks: int) -> None:
        self.ranks = [DeviceProcess(f"cpu:{rank}", workload, 1, may_fork()) for rank in range(ranks)]
        self.heard: dict[int, list[Any]] = {rank: [] for rank in range(ranks)}

    def begin(self, order: TargetOrder) -> None:
        """Let the first open a meeting, then hand everybody its part of the order."""
        for one in self.ranks:
            one.start()
        self.ranks[0].send(("meet", order.run))
        port = self.until(lambda: [m for m in self.heard[0] if isinstance(m, tuple)])[0][2]
        for rank, one in enumerate(self.ranks):
            one.begin(replace(order, seat=Seat(rank, len(self.ranks), "127.0.0.1", port)))

    def until(self, found: Callable[[], Any]) -> Any:
        """Listen until something is found."""
        deadline = time.monotonic() + PATIENCE_S
        while not (what := found()):
            assert time.monotonic() < deadline, self.heard
            for one in ready([one for one in self.ranks if one.pipe is not None], 0.1):
                self._read(one)
        return what

    def _read(self, one: DeviceProcess) -> None:
        rank = self.ranks.index(one)
        try:
            while one.pipe is not None and one.pipe.poll():
                self.heard[rank].append(one.pipe.recv())
        except (EOFError, OSError):
            self.heard[rank].append(("dead", one.lost_reason()))
            one.kill()

    def last(self, rank: int) -> Any:
        """Wait for a rank's last word."""
        return self.until(lambda: [m for m in self.heard[rank] if _is_last(m)])[0]

    def events(self, kind: type[Event]) -> list[Any]:
        """What the first rank reported of one kind."""
        return [event for event in self.heard[0] if isinstance(event, kind)]


def _is_last(message: Any) -> bool:
    if isinstance(message, tuple):
        return message[0] in ("broken", "parted", "dead")
    return type(message).__name__ == "TargetEnded"


@pytest.fixture
def team() -> Iterator[Callable[..., Team]]:
    made: list[Team] = []

    def make(workload: Workload, ranks: int = 2) -> Team:
        made.append(Team(workload, ranks))
        return made[-1]

    yield make
    for one in made:
        for process in one.ranks:
            process.kill()


def target_order(
    folder: Path, config: dict[str, Any], epochs: int = 3, scaling: int = 4, **changes: Any
) -> TargetOrder:
    setting = Setting("w", str(folder), data_seed=1, scaling=scaling, threads=1)
    return replace(TargetOrder("t0", setting, 17, config, seed=3, epochs=epochs), **changes)


@pytest.fixture
def order() -> Callable[..., TargetOrder]:
    return target_order
