"""Many changes of layout in a row on real processes: how long each pauses the run, what it leaves behind."""

import tempfile
import time
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from workers.trainer.parallel.data import Packer, load_corpus
from workers.trainer.parallel.errors import ParallelError
from workers.trainer.parallel.fleet import Fleet
from workers.trainer.parallel.local import LocalProcesses
from workers.trainer.parallel.spec import RunSpec

PHASES = ("drain", "vote", "rebuild", "transfer", "verify", "resume")
PATIENCE_S = 300.0
LOOK_S = 0.005
DEVICES = ("d0", "d1", "d2", "d3")

Stages = list[tuple[list[int], int]]
# Between any two neighbours of this ring layers, groups, stage order or replicas change, or all of them.
RING: list[list[tuple[int, Stages]]] = [
    [(4, [([0], 2), ([1], 2)]), (4, [([2], 2), ([3], 2)])],
    [(5, [([0], 3), ([1], 1)]), (3, [([2], 1), ([3], 3)])],
    [(8, [([3, 1], 1), ([0], 2), ([2], 1)])],
    [(3, [([0, 1], 4)]), (5, [([2], 2), ([3], 2)])],
    [(5, [([0], 2), ([1], 2)]), (3, [([3], 4)])],
    [(8, [([2, 0, 3, 1], 4)])],
]


@dataclass
class Change:
    """One change of layout. `pause_s` runs from the end of the last iteration to the start of the next."""

    pause_s: float
    phases_s: dict[str, float]
    sent_bytes: int


@dataclass(frozen=True)
class Footprint:
    """What a rank's process holds of the machine."""

    sockets: int
    files: int
    threads: int
    memory_bytes: int


@dataclass
class Soak:
    """The outcome; footprints are by plan rank, before the first change and after the last, in one layout."""

    changes: list[Change] = field(default_factory=list)
    before: dict[int, Footprint] = field(default_factory=dict)
    after: dict[int, Footprint] = field(default_factory=dict)
    processes_left: int = 0
    samples_exact: bool = False


def layout_document(replicas: list[tuple[int, Stages]]) -> dict[str, Any]:
    """A layout of the ring as a document."""
    return {
        "replicas": [
            {
                "microbatches": count,
                "stages": [
                    {"devices": [DEVICES[rank] for rank in ranks], "layers": layers} for ranks, layers in rows
                ],
            }
            for count, rows in replicas
        ]
    }


def soak(changes: int, width: int = 32, settle: int = 1) -> Soak:
    """Run 4 ranks through `changes` changes and back to the first layout; ParallelError if any fails.

    Before anything is measured they go through all layouts `settle` times: memory is steady after three.
    """
    with tempfile.TemporaryDirectory() as folder:
        spec = RunSpec(
            devices=DEVICES,
            layout=layout_document(RING[0]),
            folder=folder,
            width=width,
            microbatch_tokens=128,
            steps=1_000_000,
        )
        run = _Run(spec)
        try:
            return run.through(changes, settle)
        finally:
            run.fleet.stop()


class _Run:
    def __init__(self, spec: RunSpec) -> None:
        self.fleet = Fleet(spec, LocalProcesses())
        self.events: list[dict[str, Any]] = []
        self.samples: dict[int, list[int]] = {}
        self.ends_s: dict[int, float] = {}

    def through(self, changes: int, settle: int) -> Soak:
        found = Soak()
        self.fleet.start()
        self._trained(0)
        ring = [*RING[1 : changes + 1], RING[0]]
        # the first changes load code and buffers that stay
        for replicas in ring * settle:
            self._change(replicas)
        found.before = self._footprints()
        layouts = cycle(ring)
        for _ in range(changes):
            found.changes.append(self._change(next(layouts)))
        if changes % len(ring):
            self._change(RING[0])
        found.after = self._footprints()
        found.samples_exact = self._exact()
        pids = self.fleet.pids()
        self.fleet.stop()
        found.processes_left = sum(Path(f"/proc/{pid}").exists() for pid in pids.values())
        return found

    def _change(self, replicas: list[tuple[int, Stages]]) -> Change:
        epoch = self.fleet.reconfigure(layout_document(replicas))
        first_s = self._trained(epoch)
        rows = [event for event in self.events if event.get("epoch") == epoch]
        phases = {
            name: max(row["seconds"] for row in rows if row["kind"] == "phase" and row["name"] == name)
            for name in PHASES
        }
        sent = sum(row["sent_bytes"] for row in rows if row["kind"] == "resumed")
        self.events = [event for event in self.events if event.get("epoch") == epoch]
        return Change(first_s - self.ends_s[epoch - 1], phases, sent)

    def _trained(self, epoch: int) -> float:
        """Wait until all ranks have changed and two steps of an epoch are done; returns when it began."""
        gives_up_s = time.monotonic() + PATIENCE_S
        while True:
            for event in self.fleet.poll():
                self._take(event)
            resumed = [e for e in self.events if e["kind"] == "resumed" and e["epoch"] == epoch]
            steps = [e for e in self.events if e["kind"] == "iteration" and e["epoch"] == epoch]
            if len(resumed) == len(DEVICES) and len({e["step"] for e in steps}) >= 2:
                return min(float(event["started_s"]) for event in steps)
            if time.monotonic() > gives_up_s:
                raise ParallelError(f"epoch {epoch} did not come to train within {PATIENCE_S:g} s")
            time.sleep(LOOK_S)

    def _take(self, event: dict[str, Any]) -> None:
        if event["kind"] in ("failed", "abandoned"):
            raise ParallelError(f"rank {event['plan_rank']}: {event['reason']}")
        if event["kind"] == "iteration":
            epoch = event["epoch"]
            self.samples.setdefault(event["step"], []).extend(event["sequences"])
            self.ends_s[epoch] = max(event["ended_s"], self.ends_s.get(epoch, 0.0))
        if event["kind"] != "heartbeat":
            self.events.append(event)

    def _exact(self) -> bool:
        """Whether every committed step used exactly its samples, each once."""
        spec, steps = self.fleet.spec, sorted(self.samples)[:-2]  # the last may still be under way
        packer = Packer(load_corpus(spec.context), spec.microbatch_tokens, spec.seed)
        cursor = 0
        for step in range(1, len(steps) + 1):
            batches, cursor = packer.pack(cursor, spec.microbatches)
            if sorted(self.samples[step]) != sorted(sample for batch in batches for sample in batch):
                return False
        return True

    def _footprints(self) -> dict[int, Footprint]:
        return {rank: _footprint(Path(f"/proc/{pid}")) for rank, pid in self.fleet.pids().items()}


def _footprint(process: Path) -> Footprint:
    links = []
    for path in (process / "fd").iterdir():
        try:
            links.append(str(path.readlink()))
        except FileNotFoundError:
            continue  # closed between listing and reading
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
    return Footprint(
        sockets=sum(link.startswith("socket:") for link in links),
        files=len(links),
        threads=int(status["Threads"]),
        memory_bytes=int(status["VmRSS"].split()[0]) * 1024,
    )
