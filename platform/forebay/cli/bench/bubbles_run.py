"""The measurement behind `forebay bench bubbles`: one main job, guests of every kind, modes in turn.

Main job and guests live through the whole measurement; a mode decides which guests may run, and how they are
held to the bubbles. So every mode sees the same processes on the same cores, minutes apart from each other.
"""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forebay.cli.errors import CommandError, Exit
from forebay.cli.output import say
from tuning.core.study.actions import Member
from tuning.core.study.events import Reported
from workers.squeezer.board import Board, Passed, Totals
from workers.squeezer.gate import GateView
from workers.squeezer.guests import GuestOrder
from workers.squeezer.places import shared_folder
from workers.squeezer.process import SqueezerProcess
from workers.squeezer.processes import cpu_ns
from workers.squeezer.rules import Rules
from workers.trainer.orders import ContainerOrder, Setting

FUSED = 16
GUEST_CONFIG = {"lr": 0.05, "momentum": 0.9, "batch_size": 64, "gamma": 1.0}
EQUAL_STEPS, EQUAL_EPOCHS = 30, 12
STEPS = 10**6  # the learning rate depends on it: the same for both runs, never reached
START_S = 300.0
LEAST_ENDS, MOST_STRETCH = 10, 3.0  # a segment is stretched, so far, until it has seen so many iterations end

PLAIN = Rules(control_every=0)
# mode -> (scheduling class of its guests, or none; rules)
MODES: dict[str, tuple[str | None, Rules]] = {
    "squeezer": ("idle", PLAIN),
    "alone": (None, PLAIN),
    "blind": ("normal", replace(PLAIN, bounded=False)),
    "nice 19": ("nice", replace(PLAIN, bounded=False)),
    "lowest class": ("idle", replace(PLAIN, bounded=False)),
    "signals": ("normal", replace(PLAIN, hooks=False, fits=False)),
    "hooks": ("normal", replace(PLAIN, signals=False, fits=False)),
}
GUEST_ALONE = "guest alone"


def two_cores() -> tuple[int, int] | None:
    """The first two cores this process may use."""
    if sys.platform != "linux":
        return None
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], cores[1]) if len(cores) > 1 else None


@dataclass
class Segment:
    """One mode in one round."""

    mode: str
    round: int
    begun_s: float
    ended_s: float = 0.0
    iterations: list[dict[str, Any]] = field(default_factory=list)
    board: list[Totals] = field(default_factory=list)
    passed: list[list[Passed]] = field(default_factory=list)
    steps: int = 0
    guest_cpu_s: float = 0.0


@dataclass
class Measured:
    """Everything a run of the experiment has seen."""

    segments: list[Segment]
    noise: dict[str, float]
    losses: dict[int, float]
    losses_alone: dict[int, float]
    guest_curve: dict[int, Any]
    guest_curve_alone: dict[int, Any]
    samples: list[dict[str, Any]]


@dataclass
class _Guest:
    order: GuestOrder
    pid: int
    gate: GateView
    curve: dict[int, Any] = field(default_factory=dict)


class Experiment:
    """Starts everything on entering, leaves nothing behind."""

    def __init__(self, cores: tuple[int, int], seconds: float) -> None:
        self.cores, self.seconds = cores, seconds
        self.folder = Path(tempfile.mkdtemp(prefix="forebay-bubbles-", dir=shared_folder()))
        self.guests: dict[str, _Guest] = {}
        self.events: list[dict[str, Any]] = []
        self.losses: dict[int, float] = {}
        self.samples: list[dict[str, Any]] = []
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> "Experiment":
        self._exits.callback(shutil.rmtree, self.folder, ignore_errors=True)
        return self

    def __exit__(self, *exc: object) -> None:
        self._exits.close()

    def run(self, rounds: int) -> Measured:
        """Measure every mode once a round."""
        noise = machine_noise()
        losses_alone = self._reference()
        guest_curve_alone = self._guest_reference()
        self.fleet = self._start_main("main")
        self.boards = [Board(self.processes.board(rank)) for rank in (0, 1)]
        self.squeezer = SqueezerProcess(replace(PLAIN, bounded=False))
        self._exits.callback(self.squeezer.close)
        for board in self.boards:
            self.squeezer.ask("board", str(board.page.path))
        self._start_guests()
        segments = []
        for number in range(rounds):
            modes = [*MODES, GUEST_ALONE]
            for mode in modes if number % 2 == 0 else reversed(modes):
                say(f"round {number + 1} of {rounds}: {mode}")
                segments.append(self._segment(mode, number))
        return Measured(
            segments,
            noise,
            self.losses,
            losses_alone,
            self.guests["idle-0"].curve,
            guest_curve_alone,
            self.samples,
        )

    def _reference(self) -> dict[int, float]:
        """The main job's losses with nobody around."""
        say(f"{EQUAL_STEPS} iterations of the main job alone, to compare its losses")
        fleet = self._start_main("reference")
        try:
            self._until(lambda: EQUAL_STEPS in self.losses, fleet, "the reference run")
        finally:
            fleet.stop()
        found, self.losses, self.events = self.losses, {}, []
        return found

    def _guest_reference(self) -> dict[int, Any]:
        """The guest's metrics, trained here with nobody around."""
        from workers.trainer.container import run_container

        say(f"{EQUAL_EPOCHS} epochs of the guest alone, to compare its metrics")
        curve: dict[int, Any] = {}

        def note(event: Any) -> None:
            if isinstance(event, Reported):
                curve[event.epoch] = event.metrics

        run_container(self._container("reference", EQUAL_EPOCHS), note)
        return curve

    def _start_main(self, name: str) -> Any:
        from workers.trainer.bubbles.ranks import LendingProcesses
        from workers.trainer.parallel.fleet import Fleet
        from workers.trainer.parallel.spec import RunSpec

        stage = [{"devices": [device], "layers": 4} for device in ("first", "second")]
        spec = RunSpec(
            devices=("first", "second"),
            layout={"replicas": [{"microbatches": 2, "stages": stage}]},
            folder=str(self.folder / name),
            layers=8,
            width=192,
            heads=4,
            context=128,
            microbatches=2,
            microbatch_tokens=256,
            steps=STEPS,
            resume=False,
        )
        self.processes = LendingProcesses(self.folder / f"{name}-boards", dict(enumerate(self.cores)))
        fleet = Fleet(spec, self.processes)
        self._exits.callback(fleet.stop, 0.0)
        fleet.start()
        self._until(lambda: bool(self.losses), fleet, "the main job")
        return fleet

    def _until(self, done: Any, fleet: Any, what: str) -> None:
        deadline = time.monotonic() + START_S
        while not done():
            self._listen(fleet)
            if time.monotonic() > deadline or fleet.lost():
                raise CommandError(f"{what} did not get going", Exit.FAILED)
            time.sleep(0.02)

    def _listen(self, fleet: Any) -> None:
        for event in fleet.poll():
            if event["kind"] == "failed":
                raise CommandError(f"the main job failed: {event['reason']}", Exit.FAILED)
            if event["kind"] == "iteration":
                self.events.append(event)
                if event["loss"] is not None:
                    self.losses[event["step"]] = event["loss"]

    def _hear(self) -> None:
        for kind, name, *rest in self.squeezer.hear():
            if kind == "started":
                self.guests[name].pid, self.guests[name].gate = rest[0], GateView(Path(rest[1]))
            elif kind == "messages":
                curve = self.guests[name].curve
                curve |= {event.epoch: event.metrics for event in rest[0] if isinstance(event, Reported)}
            elif kind == "sample":
                self.samples.append(rest[0])
            elif kind == "ended":
                raise CommandError(f"a guest ended: {rest[0]}", Exit.FAILED)

    def _start_guests(self) -> None:
        """Start a guest of every class on both cores while the main job stands still, then hold them all."""
        say("starting the guests")
        with self._main_stopped():
            for scheduling in ("idle", "nice", "normal"):
                for rank, board in enumerate(self.boards):
                    order = self._guest_order(f"{scheduling}-{rank}", board)
                    self.guests[order.name] = _Guest(order, 0, GateView.nothing())
                    self.squeezer.ask("guest", order)
            deadline = time.monotonic() + START_S
            while not all(guest.gate.steps for guest in self.guests.values()):
                self._hear()
                if time.monotonic() > deadline:
                    raise CommandError("the guests did not get going", Exit.FAILED)
                time.sleep(0.05)
            self._admit(None)
        for name, guest in self.guests.items():
            demote(guest.pid, name.partition("-")[0])

    def _guest_order(self, name: str, board: Board) -> GuestOrder:
        order = self._container(name, 10**9)
        # they start in the usual class and are demoted afterwards, so that starting does not take for ever
        return GuestOrder(name, str(board.page.path), order, FUSED, scheduling="normal")

    def _container(self, name: str, epochs: int) -> ContainerOrder:
        members = tuple(Member(trial, GUEST_CONFIG, trial) for trial in range(FUSED))
        setting = Setting("digits-mlp", str(self.folder), 0, scaling=8, checkpoint_every=10**9, threads=1)
        return ContainerOrder(name, setting, members, 0, epochs)

    def _admit(self, scheduling: str | None) -> None:
        for name in self.guests:
            self.squeezer.ask("hold", name, scheduling is None or not name.startswith(f"{scheduling}-"))

    @contextlib.contextmanager
    def _main_stopped(self) -> Iterator[None]:
        pids = [board.owner[0] for board in self.boards]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def _segment(self, mode: str, number: int) -> Segment:
        alone = mode == GUEST_ALONE
        scheduling, rules = ("idle", replace(PLAIN, bounded=False)) if alone else MODES[mode]
        self.squeezer.ask("rules", rules)
        self._admit(scheduling)
        with self._main_stopped() if alone else contextlib.nullcontext():
            self._pass(0.1 * self.seconds)
            segment = Segment(mode, number, time.monotonic())
            before = self._reading(scheduling)
            turns = [board.turn for board in self.boards]
            self.events.clear()
            self._pass(self.seconds)
            limit_s = segment.begun_s + MOST_STRETCH * self.seconds
            while not alone and len(self.events) < LEAST_ENDS and time.monotonic() < limit_s:
                self._pass(0.25)
            after = self._reading(scheduling)
            segment.ended_s = time.monotonic()
            segment.passed = [board.passed(turn) for board, turn in zip(self.boards, turns, strict=True)]
        segment.board = [b.since(a) for a, b in zip(before[0], after[0], strict=True)]
        segment.steps, segment.guest_cpu_s = after[1] - before[1], (after[2] - before[2]) / 1e9
        self.squeezer.ask("rules", PLAIN)
        self._admit(None)
        self._pass(0.05 * self.seconds)
        segment.iterations = [
            event
            for event in self.events
            if segment.begun_s <= event["started_s"] and event["ended_s"] <= segment.ended_s
        ]
        return segment

    def _reading(self, scheduling: str | None) -> tuple[list[Totals], int, int]:
        mine = [g for name, g in self.guests.items() if scheduling and name.startswith(f"{scheduling}-")]
        totals = [board.totals() for board in self.boards]
        return totals, sum(guest.gate.steps for guest in mine), sum(cpu_ns(guest.pid) for guest in mine)

    def _pass(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            self._listen(self.fleet)
            self._hear()
            if self.fleet.lost():
                raise CommandError("the main job is lost", Exit.FAILED)
            time.sleep(min(left_s, 0.25))


def demote(pid: int, scheduling: str) -> None:
    """Move every thread of a process into a lower class."""
    for entry in Path(f"/proc/{pid}/task").iterdir():
        if scheduling == "idle":
            os.sched_setscheduler(int(entry.name), os.SCHED_IDLE, os.sched_param(0))
        elif scheduling == "nice":
            os.setpriority(os.PRIO_PROCESS, int(entry.name), 19)


def machine_noise(seconds: float = 1.0) -> dict[str, float]:
    """What others do on this machine: the share of its time that is not idle, stolen time, the load."""

    def read() -> list[int]:
        return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]

    before = read()
    time.sleep(seconds)
    grown = [b - a for a, b in zip(before, read(), strict=True)]
    total = max(sum(grown), 1)
    return {
        "busy": 1 - (grown[3] + grown[4]) / total,
        "steal": grown[7] / total,
        "load_average_1min": os.getloadavg()[0],
    }
