"""Devices that are lent for moments only: as many trials share a container as make a step in one."""

import json

import pytest

from tuning.core.space import choice, declared_space, loguniform
from tuning.core.study import (
    Checkpointed,
    ContainerEnded,
    DevicesChanged,
    Profile,
    Profiled,
    Reported,
    RoomChanged,
    StartContainer,
    StartTarget,
    StopRun,
    Study,
    StudyFacts,
    StudySpec,
    TargetCheckpointed,
    TargetEnded,
)

SPACE = declared_space({"lr": loguniform(1e-4, 1.0), "batch_size": choice([32])})
STEP_S = {"1": 0.001, "8": 0.008, "32": 0.032}


def profiled(devices, rooms, trials=20) -> Study:
    """A study of one shape whose step takes a millisecond for each trial."""
    facts = StudyFacts(metric="accuracy", mode="max", epochs=4, space=SPACE, samples=640)
    study = Study(StudySpec("tiny", trials=trials, fusion=16), facts)
    study.apply(DevicesChanged(devices))
    study.apply(RoomChanged(rooms))
    [order] = [action for action in study.decide(0.0) if isinstance(action, Profile)]
    shapes = tuple(
        {"shape": shape, "batch_size": 32, "steps_per_epoch": 10, "step_s": STEP_S, "bytes": {},
         "free_bytes": None, "fusable": True, "reason": None}
        for shape in order.shapes
    )  # fmt: skip
    study.apply(Profiled(order.run, 0.0, shapes))
    return study


def sizes(study: Study) -> dict[str, int]:
    return {a.device: len(a.members) for a in study.decide(1.0) if isinstance(a, StartContainer)}


@pytest.mark.parametrize(
    ("rooms", "size"),
    [
        ({}, 10),
        ({"bubble:a": 1.0}, 10),
        ({"bubble:a": 0.005}, 5),
        ({"bubble:a": 0.001}, 1),
        ({"bubble:a": 0.0005}, 10),  # not even one fits: they go on in pieces, and lose nothing by being many
        ({"bubble:other": 0.001}, 10),
    ],
)
def test_a_container_shrinks_until_its_step_fits(rooms, size) -> None:
    assert sizes(profiled(("bubble:a",), rooms, trials=10)) == {"bubble:a": size}


def test_devices_of_the_studys_own_take_any_step() -> None:
    found = sizes(profiled(("bubble:a", "cpu:1"), {"bubble:a": 0.003}))
    assert found["bubble:a"] == 3
    assert found["cpu:1"] > 3


def test_what_is_known_of_bubbles_survives_a_snapshot() -> None:
    study = profiled(("bubble:a",), {"bubble:a": 0.002}, trials=6)
    again = Study.restore(json.loads(json.dumps(study.snapshot())))
    assert sizes(again) == {"bubble:a": 2}


def started(study: Study, kind: type) -> list:
    return [action for action in study.decide(1.0) if isinstance(action, kind)]


def one_trial(devices, **changes) -> Study:
    facts = StudyFacts(metric="accuracy", mode="max", epochs=4, space=SPACE, samples=640)
    study = Study(StudySpec("tiny", trials=1, fusion="off", transfer_check="off", **changes), facts)
    study.apply(DevicesChanged(devices))
    return study


def test_where_own_devices_suffice_bubbles_are_left_alone() -> None:
    assert sizes(one_trial(("bubble:a", "cpu:1"))) == {"cpu:1": 1}


def test_what_runs_in_a_bubble_moves_to_an_own_device_that_has_nothing_to_do() -> None:
    study = one_trial(("bubble:a",))
    [container] = started(study, StartContainer)
    study.apply(DevicesChanged(("bubble:a", "cpu:1")))
    assert started(study, StopRun) == [StopRun(container.run, pause=True)]
    assert started(study, StopRun) == []  # asked once
    study.apply(Reported(container.run, 1, {0: {"accuracy": 0.5}}, {0: 0.1}))
    study.apply(Checkpointed(container.run, 1, "one.pt"))
    study.apply(ContainerEnded(container.run, 1.0, "paused", 1, "one.pt", 0.01))
    assert [(each.device, each.from_epoch) for each in started(study, StartContainer)] == [("cpu:1", 1)]


def test_a_target_in_a_bubble_goes_on_elsewhere_from_its_checkpoint() -> None:
    study = one_trial(("bubble:a",), scaling=2, top_k=1)
    [container] = started(study, StartContainer)
    study.apply(Reported(container.run, 4, {0: {"accuracy": 0.5}}, {0: 0.1}))
    study.apply(ContainerEnded(container.run, 1.0, "finished"))
    [target] = started(study, StartTarget)
    assert target.device == "bubble:a"
    study.apply(DevicesChanged(("bubble:a", "cpu:1")))
    assert started(study, StopRun) == []  # it would begin again
    study.apply(TargetCheckpointed(target.run, 2, "two.pt"))
    assert started(study, StopRun) == [StopRun(target.run, pause=False)]
    study.apply(TargetEnded(target.run, 1.0, "cut", 0.4, "cut.safetensors"))
    [again] = started(study, StartTarget)
    assert (again.device, again.checkpoint) == ("cpu:1", "two.pt")
