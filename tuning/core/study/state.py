"""Everything a study knows, and the questions its rules ask of it."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tuning.core.containers import ShapeProfile, guessed_profile, run_seconds, size_limit
from tuning.core.halving import Ladder, rung_epochs
from tuning.core.search import LoggedSearcher, derive_seed, make_searcher
from tuning.core.states import TRIAL_ENDED, TrialState
from tuning.core.study.facts import StudyFacts
from tuning.core.study.records import Chore, Container, Target, Trial
from tuning.core.study.spec import StudySpec
from tuning.core.transfer import Standing, best_first


@dataclass
class StudyState:
    """The study's rows and counters. Rules read it through the methods, `apply` and `decide` write it."""

    spec: StudySpec
    facts: StudyFacts
    trials: list[Trial] = field(default_factory=list)
    containers: dict[str, Container] = field(default_factory=dict)
    targets: dict[int, Target] = field(default_factory=dict)
    variants: list[Target] = field(default_factory=list)  # of the second search, on the best target
    profiles: dict[str, ShapeProfile] = field(default_factory=dict)
    profiling: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)  # run -> device, shapes
    target_step_s: dict[str, float] = field(default_factory=dict)
    target_half_s: dict[str, float] = field(default_factory=dict)  # the same on half a batch
    target_bytes: dict[str, int] = field(default_factory=dict)  # of the gradients
    chores: dict[str, Chore] = field(default_factory=dict)
    transfer: dict[str, Any] | None = None  # the last transfer report
    transfer_wanted: bool = False
    transfer_s: float = 0.0
    devices: tuple[str, ...] = ()
    room_s: dict[str, float] = field(default_factory=dict)  # longest step that fits, on lent devices
    exhausted: bool = False
    cut: str | None = None
    closing: bool = False
    ended_count: int = 0
    runs: int = 0
    profiling_s: float = 0.0
    repacking_s: dict[str, float] = field(default_factory=dict)
    compiling_s: dict[str, float] = field(default_factory=dict)
    compilations: list[dict[str, Any]] = field(default_factory=list)  # what runs decided, oldest first
    stopping: set[str] = field(default_factory=set)  # runs that were told to end
    warnings: list[str] = field(default_factory=list)
    finished: str | None = None
    changes: int = 0  # counts what may change the order of trials
    searcher: LoggedSearcher = field(init=False)
    ladder: Ladder = field(init=False)

    def __post_init__(self) -> None:
        spec, facts = self.spec, self.facts
        self.searcher = LoggedSearcher(
            make_searcher(spec.search, facts.space, spec.seed, facts.mode, spec.duplicates)
        )
        self.ladder = Ladder(self.rungs, spec.scheduler.reduction, facts.mode)
        self._by_state: dict[TrialState, set[int]] = {state: set() for state in TrialState}
        self._order: tuple[int, list[int]] = (-1, [])
        self._examples: dict[str, dict[str, object]] = {}

    @property
    def epochs(self) -> int:
        """The budget of one trial."""
        return self.spec.epochs or self.facts.epochs

    @property
    def target_epochs(self) -> int:
        """The epochs of a target model."""
        return self.spec.target_epochs or self.epochs

    @cached_property
    def rungs(self) -> tuple[int, ...]:
        """The epochs at which trials are judged; none without ASHA."""
        scheduler = self.spec.scheduler
        if scheduler.name == "fifo":
            return ()
        return rung_epochs(scheduler.grace, scheduler.reduction, self.epochs)

    @property
    def promoting(self) -> bool:
        """Whether trials pause at rungs and wait to be promoted."""
        return self.spec.scheduler.name == "asha-promote"

    @property
    def transfers(self) -> bool:
        """Whether trials are surrogates, so that target models are trained."""
        return self.spec.scaling > 1

    def new_run(self, kind: str) -> str:
        """Return a fresh id: c0, t1, p2, ..."""
        self.runs += 1
        return f"{kind}{self.runs - 1}"

    def add_trial(self, config: dict[str, object]) -> Trial:
        """Append the next trial."""
        number = len(self.trials)
        seed = derive_seed(self.spec.seed, "trial", number)
        trial = Trial(number, config, seed, self.facts.shape_of(config))
        self.take(trial)
        return trial

    def take(self, trial: Trial) -> None:
        """Append a trial as it is."""
        trial.shape = trial.shape or self.facts.shape_of(trial.config)
        self.trials.append(trial)
        self._by_state[trial.state].add(trial.number)
        self._examples.setdefault(trial.shape, trial.config)
        self.changes += 1

    def move(self, trial: Trial, to: TrialState) -> None:
        """Let a trial be in another state; the only place where that happens."""
        self._by_state[trial.state].discard(trial.number)
        self._by_state[to].add(trial.number)
        trial.state = to
        self.changes += 1

    def profile_of(self, shape: str) -> ShapeProfile:
        """Return the measurements of a shape, or a guess where there are none."""
        if shape in self.profiles:
            return self.profiles[shape]
        config = self._examples.get(shape, {})
        return guessed_profile(shape, self.facts.batch_size_of(config), self.facts.samples)

    def limit_of(self, shape: str) -> int:
        """Return how many trials of a shape one container takes."""
        return size_limit(self.profile_of(shape), self.spec.fusion) if self.facts.fusable else 1

    def fitting(self, shape: str, wanted: int, device: str) -> int:
        """Return how many of `wanted` trials of a shape share a container on a device.

        On a lent device as many as still make a step in one of its bubbles; all of them where not even one
        does, for a step in pieces is as slow for one as for many.
        """
        room_s = self.room_s.get(device)
        if room_s is None:
            return wanted
        profile = self.profile_of(shape)
        return next((size for size in range(wanted, 0, -1) if profile.seconds(size) <= room_s), wanted)

    def in_state(self, *states: TrialState) -> list[Trial]:
        """Return the trials in one of these states, in order."""
        numbers = set().union(*(self._by_state[state] for state in states))
        return [self.trials[number] for number in sorted(numbers)]

    def count(self, *states: TrialState) -> int:
        """Return how many trials are in one of these states."""
        return sum(len(self._by_state[state]) for state in states)

    def members(self, container: Container) -> list[Trial]:
        """Return the trials that are running in a container now."""
        return [
            self.trials[number]
            for number in container.trials
            if self.trials[number].run == container.id and self.trials[number].state == TrialState.RUNNING
        ]

    def active_containers(self) -> list[Container]:
        """Return the containers that occupy a device."""
        return [container for container in self.containers.values() if container.active]

    def running_targets(self) -> list[Target]:
        """Return the targets that occupy a device."""
        return [target for target in self.all_targets() if target.state == "running"]

    def all_targets(self) -> list[Target]:
        """Return every target, those of the second search last."""
        return [*self.targets.values(), *self.variants]

    def checks(self) -> dict[str, str]:
        """Return run -> device of the transfer checks that run now."""
        return {
            run: chore.device
            for run, chore in self.chores.items()
            if chore.kind == "check" and chore.end_s is None
        }

    def busy_devices(self) -> set[str]:
        """Return the devices that run something of this study."""
        busy = {container.device for container in self.active_containers()}
        busy |= {device for target in self.running_targets() for device in target.devices}
        busy |= set(self.checks().values())
        return busy | {device for device, _ in self.profiling.values()}

    def remaining_s(self, container: Container) -> float:
        """Return the predicted seconds until a container ends, if nobody leaves it."""
        size = max(len(self.members(container)), 1)
        left = max(container.until_epoch - container.epoch, 0)
        return run_seconds(self.profile_of(container.shape), size, left)

    def target_seconds(self, trial: Trial) -> float | None:
        """Return the predicted seconds of a whole target, where one full-width step was measured."""
        step = self.target_step_s.get(trial.shape)
        if step is None:
            return None
        return step * self.profile_of(trial.shape).steps_per_epoch * self.target_epochs

    def finished_fraction(self) -> float:
        """Return the share of the study's trials that have ended."""
        total = len(self.trials) if self.exhausted else self.spec.trials
        return self.count(*TRIAL_ENDED) / max(total, 1)

    def best_order(self) -> list[int]:
        """Return the trials with a finite metric, best first (see `transfer.best_first`)."""
        if self._order[0] != self.changes:
            standings = [self._standing(trial) for trial in self.trials if _eligible(trial)]
            self._order = (self.changes, best_first(standings, self.facts.mode))
        return list(self._order[1])

    def _standing(self, trial: Trial) -> Standing:
        value = trial.metric(self.facts.metric)
        finite = value is not None and math.isfinite(value)
        return Standing(
            trial.number, value if finite else None, trial.epochs, trial.state == TrialState.COMPLETED
        )

    def search_over(self) -> bool:
        """Return whether every trial there will be has ended."""
        everything = self.exhausted or len(self.trials) >= self.spec.trials
        return everything and not self.count(TrialState.WAITING, TrialState.RUNNING)


def _eligible(trial: Trial) -> bool:
    return bool(trial.metrics) and trial.state != TrialState.FAILED
