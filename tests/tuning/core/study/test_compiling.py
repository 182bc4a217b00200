"""Which runs of a study may compile, and what the study keeps of their decisions."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tuning.core.errors import SpecError
from tuning.core.space import choice, declared_space, loguniform
from tuning.core.study import (
    CompileDecided,
    DevicesChanged,
    Member,
    StartContainer,
    StartTarget,
    Study,
    StudyFacts,
    StudySpec,
    compile_chance,
    event_from_json,
    summary,
)
from tuning.core.study.spec import spec_schema

SPACE = declared_space({"lr": loguniform(1e-4, 1.0), "batch_size": choice([32])})
SHAPE = '{"batch_size": 32}'
KEPT = {
    "model": "target", "shape": SHAPE, "device": "cpu", "torch": "2.13.0", "threads": 1, "outcome": "kept",
    "reason": "a compiled step saves 5 ms of 40 ms", "steps_left": 900, "eager_step_s": 0.04,
    "compiled_step_s": 0.035, "compile_s": 12.0, "break_even_steps": 2400,
}  # fmt: skip


def study(devices: tuple[str, ...] = ("cpu:0",), **changes: Any) -> Study:
    facts = StudyFacts("accuracy", "max", 9, SPACE, samples=640)
    made = Study(
        StudySpec("tiny", **{"trials": 2, "transfer_check": "off", "fusion": "off", **changes}), facts
    )
    made.apply(DevicesChanged(devices))
    return made


def started(made: Study) -> StartContainer:
    return next(action for action in made.decide(0.0) if isinstance(action, StartContainer))


def target(device: str = "cpu:0") -> StartTarget:
    return StartTarget("t0", device, 0, {}, 0, 9, None)


def container(members: int, device: str = "cpu:0") -> StartContainer:
    parts = tuple(Member(number, {}, 0) for number in range(members))
    return StartContainer("c0", device, SHAPE, parts, 0, 9, (), members > 1)


def test_compiling_is_auto_or_off_and_anything_else_is_one_clear_error() -> None:
    assert StudySpec.from_dict({"workload": "tiny"}).compile == "auto"
    assert StudySpec.from_dict({"workload": "tiny", "compile": "off"}).compile == "off"
    with pytest.raises(SpecError) as caught:
        StudySpec.from_dict({"workload": "tiny", "compile": "always"})
    (problem,) = caught.value.problems
    assert (problem.pointer, problem.detail) == ("/spec/compile", "must be one of auto, off")
    assert spec_schema()["properties"]["compile"]["enum"] == ["auto", "off"]


@pytest.mark.parametrize(
    ("devices", "changes", "action", "may"),
    [
        (("cpu:0", "cpu:1"), {}, target(), True),
        (("cpu:0", "cpu:1"), {}, replace(target(), beside=("cpu:1",)), False),  # both would wait
        (("cpu:0",), {"scheduler": "asha"}, target(), True),
        (("cpu:0",), {"compile": "off"}, target(), False),
        (("cpu:0",), {}, target("bubble:7"), False),
        (("cpu:0", "cpu:1"), {}, container(1), True),
        (("cpu:0",), {}, container(4), True),
        (("cpu:0", "cpu:1"), {}, container(4), False),  # it may be split
        (("cpu:0",), {"scheduler": "asha"}, container(1), False),  # its trial may leave at a rung
        (("cpu:0",), {}, container(1, "bubble:7"), False),
    ],
)
def test_only_runs_whose_steps_are_certain_may_compile(
    devices: tuple[str, ...], changes: dict[str, Any], action: StartTarget | StartContainer, may: bool
) -> None:
    name = changes.pop("scheduler", None)
    options = (
        {"scheduler": StudySpec.from_dict({"workload": "t", "scheduler": name}).scheduler} if name else {}
    )
    made = study(devices, **changes, **options)
    made.decide(0.0)
    chance = compile_chance(made.state, action, 0.0)
    assert (chance is not None) is may
    assert chance is None or chance.shape == SHAPE


def test_a_deadline_bounds_what_is_certain() -> None:
    made = study(deadline_s=100.0)
    made.decide(0.0)
    chance = compile_chance(made.state, target(), 30.0)
    assert chance is not None
    assert chance.seconds_left == 70.0


def test_decisions_reach_the_next_run_the_summary_and_every_snapshot() -> None:
    made = study()
    run = started(made).run
    event = CompileDecided(run, KEPT, 12.5)
    made.apply(event_from_json(json.loads(json.dumps(event.to_json()))))
    made.apply(event)  # the second time it changes nothing
    assert made.compilations() == [{**KEPT, "run": run}]
    again = Study.restore(json.loads(json.dumps(made.snapshot(), allow_nan=False)))
    for one in (made, again):
        chance = compile_chance(one.state, target(), 0.0)
        assert chance is not None
        assert [known["outcome"] for known in chance.known] == ["kept"]
        assert summary(one.state)["compiling_s"] == 12.5
        assert summary(one.state)["target_compiling_s"] == 0.0


def test_of_one_graph_the_first_measurement_and_the_latest_of_each_outcome_stay() -> None:
    made = study()
    run = started(made).run
    for seconds in (12.0, 2.0, 1.5):
        made.apply(CompileDecided(run, {**KEPT, "compile_s": seconds}))
    made.apply(CompileDecided(run, {**KEPT, "outcome": "not tried", "compile_s": None}))
    made.apply(CompileDecided(run, {**KEPT, "outcome": "not tried", "compile_s": None, "steps_left": 3}))
    found = [(one["outcome"], one["compile_s"]) for one in made.compilations()]
    assert found == [("kept", 12.0), ("kept", 1.5), ("not tried", None)]
    assert made.compilations()[-1]["steps_left"] == 3


def test_a_decision_of_a_run_that_is_over_changes_nothing() -> None:
    made = study()
    made.apply(CompileDecided("t9", KEPT, 12.5))
    assert made.compilations() == []


def test_a_snapshot_from_before_there_was_compiling_still_loads() -> None:
    snapshot = study().snapshot()
    del snapshot["spec"]["compile"], snapshot["compiling_s"], snapshot["compilations"]
    restored = Study.restore(snapshot)
    assert (restored.spec.compile, restored.compilations()) == ("auto", [])
    assert summary(restored.state)["compiling_s"] == 0.0
