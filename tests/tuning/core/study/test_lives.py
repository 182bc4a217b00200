"""Whole studies with a simulated driver: devices come and go, processes die, drivers are restarted.

The invariants of a study are checked after every random life: every trial ends exactly once, the budget is
exact, nothing counts twice, and the same log gives the same decisions.
"""

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuning.core.space import choice, declared_space, loguniform
from tuning.core.states import TRIAL_ENDED, TrialState
from tuning.core.study import (
    Checkpointed,
    CheckTransfer,
    ContainerEnded,
    Cut,
    DevicesChanged,
    Finish,
    Proceed,
    Profile,
    Profiled,
    Reported,
    Resumed,
    RunLost,
    StartContainer,
    StartTarget,
    StopRun,
    Study,
    StudyFacts,
    StudySpec,
    TargetCheckpointed,
    TargetEnded,
    TargetReported,
    TransferChecked,
    TrialFailed,
)

SPACE = declared_space({"lr": loguniform(1e-4, 1.0), "batch_size": choice([32, 64])})


def facts(**changes: Any) -> StudyFacts:
    values = {
        "metric": "accuracy", "mode": "max", "epochs": 9, "space": SPACE, "samples": 640, "undivided": None,
    }  # fmt: skip
    return StudyFacts(**{**values, **changes})


def quality(config: dict[str, Any], epoch: int) -> float:
    return round(1 - abs(config["lr"] - 0.1) - 1 / (epoch + 1), 6)


@dataclass
class Simulation:
    """A driver that answers actions with events, in a random order, with random losses."""

    study: Study
    rng: random.Random
    loss_rate: float = 0.0
    fail_rate: float = 0.0
    restart_rate: float = 0.0
    running: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[Any] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    finish: Finish | None = None
    widest: int = 0
    now: float = 0.0

    def apply(self, event: Any) -> None:
        before = {t.number: t.state for t in self.study.trials}
        self.study.apply(event)
        if self.rng.random() < 0.3:
            self.study.apply(event)  # every event may arrive twice
        self.log.append(event)
        self.count(before)

    def count(self, before: dict[int, TrialState]) -> None:
        for trial in self.study.trials:
            if trial.state in TRIAL_ENDED and before.get(trial.number) not in TRIAL_ENDED:
                self.ended[trial.number] = self.ended.get(trial.number, 0) + 1

    def step(self) -> None:
        self.now += 1.0
        before = {t.number: t.state for t in self.study.trials}
        actions = self.study.decide(self.now)
        self.log.append((self.now, [action.to_json() for action in actions]))
        self.count(before)
        for action in actions:
            self.carry_out(action)
        if self.rng.random() < self.restart_rate:
            self.study = Study.restore(json.loads(json.dumps(self.study.snapshot(), allow_nan=False)))
        for run in list(self.running):
            if run in self.running and self.rng.random() < 0.6:
                self.advance(run)

    def carry_out(self, action: Any) -> None:
        if isinstance(action, Finish):
            self.finish = action
        elif isinstance(action, Profile):
            shapes = [
                {
                    "shape": shape,
                    "batch_size": config["batch_size"],
                    "steps_per_epoch": 10,
                    "step_s": {"1": 1.0, "8": 1.6, "32": 5.0},
                    "bytes": {"1": 1000, "2": 1500},
                    "free_bytes": 10_000,
                    "fusable": True,
                    "reason": None,
                }
                for shape, config in action.shapes.items()
            ]
            costs = [dict.fromkeys(action.shapes, value) for value in (2.0, 1.1, 1000)]
            self.apply(Profiled(action.run, self.now, tuple(shapes), 0.1, *costs))
        elif isinstance(action, StartContainer):
            assert len({member.trial for member in action.members}) == len(action.members)
            assert all((m.checkpoint is None) == (action.from_epoch == 0) for m in action.members)
            shapes = {self.study.state.facts.shape_of(m.config) for m in action.members}
            assert shapes == {action.shape}
            assert not self.taken([action.device])
            members = {m.trial: m.config for m in action.members}
            self.running[action.run] = {
                "device": action.device, "epoch": action.from_epoch, "trials": members, "order": action,
                "waiting": False, "pause": False, "stop": False,
            }  # fmt: skip
        elif isinstance(action, CheckTransfer):
            assert len({self.study.state.facts.shape_of(m.config) for m in action.members}) == 1
            self.running[action.run] = {"device": action.device, "check": action}
        elif isinstance(action, StartTarget):
            assert not self.taken(action.devices)
            self.widest = max(self.widest, len(action.devices))
            self.running[action.run] = {
                "device": action.device, "target": action, "epoch": self.reached(action.checkpoint),
                "stop": False, "pause": False, "beside": action.beside,
            }  # fmt: skip
        elif isinstance(action, Proceed):
            run = self.running[action.run]
            assert run["waiting"]
            assert run["epoch"] == action.epoch
            run["waiting"], run["pause"] = False, action.pause
            for trial in action.stop:
                run["trials"].pop(trial, None)
            self.settle(action.run)
        elif isinstance(action, StopRun) and action.run in self.running:
            self.running[action.run]["pause" if action.pause else "stop"] = True

    def taken(self, devices: Any) -> set[str]:
        """Those of the devices on which something runs."""
        busy = {d for r in self.running.values() for d in (r["device"], *r.get("beside", ()))}
        return busy & set(devices)

    def reached(self, checkpoint: str | None) -> int:
        """The epoch of a checkpoint of a target."""
        return int(checkpoint.rpartition("-")[2].removesuffix(".pt")) if checkpoint else 0

    def settle(self, run: str) -> None:
        """End a container that has nobody left or was asked to pause."""
        state = self.running.get(run)
        if state is None or state["waiting"]:
            return
        if not state["trials"]:
            del self.running[run]
            outcome = "finished" if state["epoch"] >= state["order"].until_epoch else "stopped"
            self.apply(ContainerEnded(run, self.now, outcome))
        elif state["pause"]:
            del self.running[run]
            self.apply(ContainerEnded(run, self.now, "paused", state["epoch"], f"{run}.pt", 0.01))

    def advance(self, run: str) -> None:
        state = self.running[run]
        if self.rng.random() < self.loss_rate:
            del self.running[run]
            self.apply(RunLost(run, self.now, "killed by signal 9"))
        elif "check" in state:
            del self.running[run]
            self.apply(TransferChecked(run, self.now, {"verdict": "passed"}, 0.5))
        elif "target" in state:
            self.advance_target(run, state)
        elif not state["waiting"]:
            self.advance_container(run, state)

    def advance_container(self, run: str, state: dict[str, Any]) -> None:
        if state["stop"]:
            del self.running[run]
            self.apply(ContainerEnded(run, self.now, "stopped"))
            return
        state["epoch"] += 1
        epoch, order = state["epoch"], state["order"]
        for trial in list(state["trials"]):
            if self.rng.random() < self.fail_rate:
                del state["trials"][trial]
                self.apply(TrialFailed(run, trial, f"broke at epoch {epoch}"))
        if state["trials"]:
            metrics = {t: {"accuracy": quality(c, epoch)} for t, c in state["trials"].items()}
            state["waiting"] = epoch in order.rungs
            self.apply(Reported(run, epoch, metrics, dict.fromkeys(metrics, 0.1 * epoch)))
            if self.rng.random() < 0.5:
                self.apply(Checkpointed(run, epoch, f"{run}-{epoch}.pt"))
        if epoch >= order.until_epoch:
            state["trials"] = {}
        self.settle(run)

    def advance_target(self, run: str, state: dict[str, Any]) -> None:
        order, state["epoch"] = state["target"], state["epoch"] + 3
        value = quality(order.config, state["epoch"])
        if state["stop"]:
            del self.running[run]
            self.apply(TargetEnded(run, self.now, "cut", value, "cut.safetensors"))
            return
        self.apply(TargetReported(run, state["epoch"], {"accuracy": value}, 0.3))
        if self.rng.random() < 0.5:
            self.apply(TargetCheckpointed(run, state["epoch"], f"{run}-{state['epoch']}.pt"))
        if state["epoch"] >= order.epochs:
            del self.running[run]
            self.apply(TargetEnded(run, self.now, "completed", value, "model.safetensors"))
        elif state["pause"]:
            del self.running[run]
            self.apply(TargetCheckpointed(run, state["epoch"], f"{run}-{state['epoch']}.pt"))
            self.apply(TargetEnded(run, self.now, "paused", value, "paused.safetensors"))

    def live(self, steps: int = 4000) -> None:
        for _ in range(steps):
            if self.finish is not None:
                return
            self.step()
        raise AssertionError(f"the study never ended: {self.study.active_runs()}")


OWN, MIXED, LENT = ("cpu:0", "cpu:1"), ("bubble:a", "cpu:1"), ("bubble:a", "bubble:b")


def start(
    spec: dict[str, Any],
    seed: int,
    devices: tuple[str, ...] = OWN,
    undivided: str | None = None,
    **rates: float,
) -> Simulation:
    study = Study(StudySpec.from_dict({"workload": "w", **spec}), facts(undivided=undivided))
    simulation = Simulation(study, random.Random(seed), **rates)
    simulation.apply(DevicesChanged(devices))
    return simulation


SCHEDULERS = ["fifo", {"name": "asha", "grace": 1, "reduction": 3}, {"name": "asha-promote", "grace": 1}]
specs = st.fixed_dictionaries(
    {
        "trials": st.integers(1, 25),
        "scheduler": st.sampled_from(SCHEDULERS),
        "scaling": st.sampled_from([1, 8]),
        "fusion": st.sampled_from(["auto", "off", 4]),
        "eager": st.sampled_from([0.3, 0.5, 1]),
        "top_k": st.integers(1, 4),
        "seed": st.integers(0, 5),
        "transfer_check": st.sampled_from(["auto", "off"]),
    }
)


@settings(max_examples=150, deadline=None)
@given(
    spec=specs,
    seed=st.integers(0, 10_000),
    loss=st.sampled_from([0, 0.05, 0.3]),
    fail=st.sampled_from([0, 0.1]),
    devices=st.sampled_from([OWN, MIXED, LENT]),
)
def test_every_trial_ends_exactly_once_whatever_happens(
    spec: dict[str, Any], seed: int, loss: float, fail: float, devices: tuple[str, ...]
) -> None:
    life = start(spec, seed, devices, loss_rate=loss, fail_rate=fail, restart_rate=0.05)
    life.live()
    trials = life.study.trials
    assert len(trials) == spec["trials"]
    assert life.ended == dict.fromkeys(range(spec["trials"]), 1)
    assert sorted(t.ended_order for t in trials) == list(range(len(trials)))
    assert not life.study.active_runs()
    for trial in trials:
        if trial.state == TrialState.COMPLETED:
            assert trial.epochs == 9
            assert trial.metric("accuracy") == quality(trial.config, 9)
        elif trial.state == TrialState.FAILED:
            assert trial.reason


@settings(max_examples=40, deadline=None)
@given(spec=specs, seed=st.integers(0, 10_000))
def test_the_same_log_gives_the_same_decisions(spec: dict[str, Any], seed: int) -> None:
    life = start(spec, seed, loss_rate=0.1, fail_rate=0.05)
    life.live()
    again = Study(StudySpec.from_dict({"workload": "w", **spec}), facts())
    for entry in life.log:
        if isinstance(entry, tuple):
            assert [action.to_json() for action in again.decide(entry[0])] == entry[1]
        else:
            again.apply(entry)
    assert again.snapshot() == life.study.snapshot()


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_undisturbed_trials_report_every_epoch_once_and_the_best_ones_get_targets(scheduler: Any) -> None:
    life = start({"trials": 20, "scheduler": scheduler, "top_k": 3, "scaling": 8, "eager": 0.5}, 1)
    life.live()
    study = life.study
    for trial in study.trials:
        assert list(trial.metrics) == list(range(1, trial.epochs + 1))
    order = study.state.best_order()
    completed = [t.trial for t in study.targets if t.state == "completed"]
    assert set(order[:3]) <= set(completed)
    assert life.finish == Finish("completed", None)
    best = study.best()
    assert best is not None
    assert best["trial"] in completed
    if scheduler != "fifo":
        assert {t.state for t in study.trials} == {TrialState.COMPLETED, TrialState.STOPPED}


def test_a_cut_study_resumes_and_ends_with_the_exact_budget() -> None:
    life = start({"trials": 12, "scheduler": "fifo", "seed": 3}, 5)
    for _ in range(6):
        life.step()
    life.apply(Cut("interrupted"))
    life.live()
    assert life.finish == Finish("cut", "interrupted")
    assert all(trial.ended for trial in life.study.trials)
    spec = StudySpec.from_dict({"workload": "w", "trials": 15, "scheduler": "fifo", "seed": 3})
    done = {t.number: t.to_json() for t in life.study.trials if t.state == TrialState.COMPLETED}
    resumed = Simulation(Study.restore(life.study.snapshot(), spec), random.Random(7))
    resumed.apply(Resumed())
    resumed.live()
    assert len(resumed.study.trials) == 15
    assert {t.state for t in resumed.study.trials} == {TrialState.COMPLETED}
    assert {n: resumed.study.trials[n].to_json() for n in done} == done


def test_a_deadline_leaves_time_for_a_target_and_cuts_the_rest() -> None:
    life = start({"trials": 400, "deadline_s": 60, "fusion": 4, "eager": 1}, 2)
    life.live()
    assert life.study.targets
    assert any(t.state == TrialState.CUT for t in life.study.trials)
    assert life.now <= 75
    assert life.study.best() is not None


def test_a_trial_that_kills_its_process_fails_alone() -> None:
    study = Study(StudySpec.from_dict({"workload": "w", "trials": 6, "scaling": 1, "fusion": 6}), facts())
    life = Simulation(study, random.Random(0))
    life.apply(DevicesChanged(("cpu:0",)))
    for _ in range(400):
        for run, state in list(life.running.items()):
            if 2 in state["trials"]:
                del life.running[run]
                life.apply(RunLost(run, life.now, "killed by signal 9"))
        if life.finish:
            break
        life.step()
    states = {t.number: str(t.state) for t in life.study.trials}
    assert states == {
        0: "completed",
        1: "completed",
        2: "failed",
        3: "completed",
        4: "completed",
        5: "completed",
    }
    assert life.study.trials[2].reason == "its process was lost 3 times, the last time: killed by signal 9"


def test_targets_of_random_lives_take_further_devices_where_they_may() -> None:
    spec = {"trials": 4, "scaling": 8, "top_k": 1, "eager": 1, "transfer_check": "off"}
    widest = {}
    for undivided in (None, "it has BatchNorm"):
        life = start(spec, 1, ("cpu:0", "cpu:1", "cpu:2"), undivided)
        life.live()
        widest[undivided] = life.widest
    assert widest == {None: 3, "it has BatchNorm": 1}
