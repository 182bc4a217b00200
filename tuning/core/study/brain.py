"""A study as a state machine: events in, actions out, nothing else.

    study = Study(spec, facts)
    study.apply(DevicesChanged(("cpu:0", "cpu:1")))
    for action in study.decide(now_s=0.0): ...        # carry it out, answer with events
    study.apply(Reported("c0", epoch=3, metrics={0: {"accuracy": 0.9}, 1: {"accuracy": 0.8}}))

The same events and decisions in the same order give the same study, on every machine. Apply everything that
has arrived before deciding: results that arrive together are all recorded before any of them is judged. A
driver that died rebuilds the study with `restore` and sends `RunLost` for every run that is gone; nothing
counts twice.
"""

from collections.abc import Iterable
from typing import Any

from tuning.core.errors import Problem, SpecError
from tuning.core.search import derive_seed
from tuning.core.study.actions import Action
from tuning.core.study.applying import apply_event
from tuning.core.study.deciding import decide
from tuning.core.study.events import Event
from tuning.core.study.facts import StudyFacts
from tuning.core.study.records import Target, Trial
from tuning.core.study.results import best_document, containers_table, fusion_table
from tuning.core.study.snapshot import load_snapshot, take_snapshot
from tuning.core.study.spec import StudySpec
from tuning.core.study.state import StudyState


class Study:
    """The brain of one study. It holds no clock, no files and no processes."""

    def __init__(self, spec: StudySpec, facts: StudyFacts) -> None:
        if spec.scheduler.name == "asha-promote" and not facts.resumable:
            detail = "asha-promote needs trials that can pause, which a training function cannot; use asha"
            raise SpecError([Problem("/spec/scheduler/name", detail)])
        self.state = StudyState(spec, facts)

    @property
    def spec(self) -> StudySpec:
        """What was asked for."""
        return self.state.spec

    @property
    def trials(self) -> list[Trial]:
        """Every trial so far, by number."""
        return self.state.trials

    @property
    def targets(self) -> list[Target]:
        """Every target model so far, in the order in which they were wanted."""
        return self.state.all_targets()

    @property
    def warnings(self) -> list[str]:
        """Sentences that a person should read."""
        return list(self.state.warnings)

    @property
    def finished(self) -> str | None:
        """`completed`, `failed` or `cut` once the study is over."""
        return self.state.finished

    @property
    def data_seed(self) -> int:
        """The seed of the sample order, shared by all trials and targets."""
        return derive_seed(self.spec.seed, "data")

    def apply(self, event: Event) -> None:
        """Take note of an event; one that was already known changes nothing."""
        apply_event(event, self.state)

    def apply_all(self, events: Iterable[Event]) -> None:
        """Take note of several events that arrived together."""
        for event in events:
            self.apply(event)

    def decide(self, now_s: float, free_devices: list[str] | None = None) -> list[Action]:
        """Return what to do now; every action is given once.

        `now_s` is seconds since the study began (over all its lives, if it was resumed). `free_devices` are
        the devices that may be taken; None means all of the study's devices that it does not use itself.
        """
        return decide(self.state, now_s, free_devices)

    def active_runs(self) -> dict[str, str]:
        """Return run id -> device of everything that should be running now (the first of several)."""
        state = self.state
        runs = {container.id: container.device for container in state.active_containers()}
        runs |= {str(target.run): str(target.device) for target in state.running_targets()}
        runs |= state.checks()
        return runs | {run: device for run, (device, _) in state.profiling.items()}

    def devices_of(self, run: str) -> list[str]:
        """Return every device that a run occupies now."""
        wide = next((target for target in self.state.running_targets() if target.run == run), None)
        return wide.devices if wide else [self.active_runs()[run]]

    def trial_table(self) -> list[dict[str, Any]]:
        """Return the rows of `trial_table`."""
        return [trial.row(self.state.facts.metric) for trial in self.trials]

    def best(self) -> dict[str, Any] | None:
        """Return the best full-width model so far: trial, config, metric, surrogate_metric, model."""
        return best_document(self.state)

    def containers(self) -> list[dict[str, Any]]:
        """Return every container with its device, times and trials."""
        return containers_table(self.state)

    def fusion(self) -> dict[str, Any]:
        """Return what was measured about fusing, by batch size."""
        return fusion_table(self.state)

    def compilations(self) -> list[dict[str, Any]]:
        """Return what was decided about compiling, with what was measured, oldest first."""
        return [dict(decision) for decision in self.state.compilations]

    def snapshot(self) -> dict[str, Any]:
        """Return everything as strict JSON data."""
        return take_snapshot(self.state)

    @classmethod
    def restore(cls, snapshot: dict[str, Any], spec: StudySpec | None = None) -> "Study":
        """Rebuild a study; a new `spec` may raise `trials`, `deadline_s`, `devices` or `top_k`.

        SnapshotError where the snapshot is of another format or the spec is of another study.
        """
        study = cls.__new__(cls)
        study.state = load_snapshot(snapshot, spec)
        return study
