"""Small runs of several ranks: as threads of this process for arithmetic, as real processes for death."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.core.layout.transfer import STATE_TENSORS
from workers.trainer.parallel.fleet import Fleet
from workers.trainer.parallel.local import LocalProcesses
from workers.trainer.parallel.rank import Rank
from workers.trainer.parallel.spec import RunSpec

PATIENCE_S = 250.0


class ThreadedRank:
    """A rank of this very process: everything but death is real, the sockets included."""

    def __init__(self, order, hook=None):
        self.rank = Rank(hook, orphaned=lambda: None)
        self.taken = 0
        self.rank.start(order)

    def poll(self):
        events = self.rank.desk.poll(self.taken, wait_s=0.0)
        self.taken += len(events)
        return events

    def command(self, data):
        self.rank.command(data)

    @property
    def pid(self):
        return os.getpid()

    def alive(self):
        return not self.rank.desk.stopped

    def end(self, grace_s):
        self.rank.stop()
        self.rank.join(grace_s)


class Threads:
    host = "127.0.0.1"

    def __init__(self, hooks):
        self.hooks = hooks

    def start(self, order):
        return ThreadedRank(order, self.hooks.get(order.plan_rank))


class Crew:
    """A fleet and everything its ranks have said."""

    def __init__(self, spec: RunSpec, processes: Any) -> None:
        self.fleet = Fleet(spec, processes)
        self.events: list[dict[str, Any]] = []
        self.fleet.start()

    def look(self) -> None:
        self.events += self.fleet.poll()

    def until(self, condition: Callable[[], Any]) -> Any:
        """Poll until a condition holds; a failed rank ends the test with its reason."""
        ends = time.monotonic() + PATIENCE_S
        while not (value := condition()):
            self.look()
            failed = [event for event in self.events if event["kind"] == "failed"]
            assert not failed, failed
            assert time.monotonic() < ends, self.events[-20:]
            time.sleep(0.005)
        return value

    def of(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        rows = [event for event in self.events if event["kind"] == kind]
        return [row for row in rows if all(row.get(name) == value for name, value in fields.items())]

    def reached(self, step: int) -> None:
        self.until(lambda: self.of("iteration", step=step))

    def resumed(self, epoch: int, ranks: int) -> None:
        self.until(lambda: len(self.of("resumed", epoch=epoch)) == ranks)

    def finished(self) -> str:
        return self.until(lambda: self.of("finished"))[0]["path"]

    def committed(self) -> dict[int, list[dict[str, Any]]]:
        """The iterations that count, by step: of a step that was run again, the last time."""
        rows: dict[int, list[dict[str, Any]]] = {}
        last: dict[int, int] = {}
        for event in self.of("iteration"):
            last[event["step"]] = max(event["epoch"], last.get(event["step"], -1))
        for event in self.of("iteration"):
            if event["epoch"] == last[event["step"]]:
                rows.setdefault(event["step"], []).append(event)
        return rows

    def losses(self) -> list[float]:
        rows = self.committed()
        return [next(row["loss"] for row in rows[step] if row["loss"] is not None) for step in sorted(rows)]

    def samples_by_step(self) -> list[list[int]]:
        """What each committed iteration consumed, as its ranks reported it."""
        rows = self.committed()
        return [[sample for row in rows[step] for sample in row["sequences"]] for step in sorted(rows)]

    def samples(self) -> list[int]:
        """Everything consumed by committed iterations, in the order of the steps."""
        return [sample for row in self.samples_by_step() for sample in row]

    def holdings(self) -> dict[int, Any]:
        """What the ranks of this process hold."""
        ranks = self.fleet._ranks
        return {number: process.rank._trainer.holding for number, process in ranks.items()}

    def tensors(self, kind: str) -> dict[str, torch.Tensor]:
        """The whole tensors of one kind, put together from the boxes of all ranks, which must agree."""
        whole: dict[str, torch.Tensor] = {}
        for holding in self.holdings().values():
            state = holding.state
            if state is None:
                continue
            for name, tensor in state.tensors.items():
                target = whole.setdefault(name, torch.full(tensor.shape, torch.nan))
                box = state.boxes[tensor.layer]
                dim, size = tensor.split or 0, tensor.shape[tensor.split or 0]
                start = 0 if tensor.split is None else int(size * box.start)
                part = target.narrow(dim, start, state.views[kind][name].shape[dim])
                known = ~part.isnan()
                assert torch.equal(part[known], state.views[kind][name][known]), f"{name} differs"
                part.copy_(state.views[kind][name])
        return whole

    def state(self) -> dict[str, dict[str, torch.Tensor]]:
        return {kind: self.tensors(kind) for kind in STATE_TENSORS}


def _crews(folder: Path) -> Iterator[Callable[..., Crew]]:
    made: list[Crew] = []

    def make(layout: dict[str, Any], *, real: bool = False, hooks: Any = None, **fields: Any) -> Crew:
        stages = [stage for replica in layout["replicas"] for stage in replica["stages"]]
        ranks = 1 + max(int(name[1:]) for stage in stages for name in stage["devices"])
        known = {"width": 16, "context": 32, "microbatch_tokens": 64, "steps": 3}
        known["folder"] = str(folder / f"run-{len(made)}")
        devices = tuple(f"d{rank}" for rank in range(ranks))
        spec = RunSpec(devices=devices, layout=layout, **{**known, **fields})
        made.append(Crew(spec, LocalProcesses() if real else Threads(hooks or {})))
        return made[-1]

    yield make
    for one in made:
        one.fleet.stop()


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Callable[..., Crew]]:
    """Make fleets that end with the test; `real=True` for processes."""
    yield from _crews(tmp_path)


@pytest.fixture(scope="module")
def module_crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Crew]]:
    """As `crew`, for the whole module."""
    yield from _crews(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def layout_of() -> Callable[..., dict[str, Any]]:
    """Write a layout shortly: per replica its micro-batches and (devices, layers) of each stage."""

    def layout(*replicas: tuple[int, list[tuple[list[int], int]]]) -> dict[str, Any]:
        return {"replicas": [{"microbatches": count, "stages": stages_of(rows)} for count, rows in replicas]}

    def stages_of(rows: list[tuple[list[int], int]]) -> list[dict[str, Any]]:
        return [{"devices": [f"d{rank}" for rank in ranks], "layers": layers} for ranks, layers in rows]

    return layout
