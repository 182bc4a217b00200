"""When a target gets further devices, when it gives them back, and when it is better off with one."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tuning.core.space import choice, declared_space, loguniform
from tuning.core.study import (
    ContainerEnded,
    Cut,
    DevicesChanged,
    Profile,
    Profiled,
    Reported,
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
    TransferWanted,
)
from tuning.core.study.records import Target
from tuning.core.study.widening import spare_devices
from tuning.core.study.width import StepCost, best_width, link_among, suitable

SPACE = declared_space({"lr": loguniform(1e-4, 1.0), "batch_size": choice([32])})
FACTS = StudyFacts("accuracy", "max", 100, SPACE, samples=640, undivided=None)
HEAVY = StepCost(0.5, 0.26, 4_000_000)


def node(*names: str) -> list[str]:
    return [f"n/cpu:{name}" for name in names]


WIDTHS = {
    "a heavy step takes all it can get": (HEAVY, 32, "n/cpu:0", node("1", "2", "3"), 4),
    "no more ranks than samples": (HEAVY, 2, "n/cpu:0", node("1", "2", "3"), 2),
    "a batch of one": (HEAVY, 1, "n/cpu:0", node("1"), 1),
    "nothing beside": (HEAVY, 32, "n/cpu:0", [], 1),
    "a tiny step loses to the exchange": (StepCost(2e-3, 1.2e-3, 400_000), 32, "n/cpu:0", node("1"), 1),
    "a step that is all fixed cost": (StepCost(0.5, 0.5, 400_000), 32, "n/cpu:0", node("1"), 1),
    "gradients too large for the link": (StepCost(0.5, 0.26, 400_000_000), 32, "n/cpu:0", node("1"), 1),
    "the same over GPUs' links": (StepCost(0.5, 0.26, 400_000_000), 32, "n/H200:0", ["n/H200:1"], 2),
    "the network between machines is slower": (
        StepCost(0.1, 0.052, 16_000_000), 32, "n/cpu:0", ["m/cpu:0"], 1,
    ),
    "in one machine it is worth it": (StepCost(0.1, 0.052, 4_000_000), 32, "n/cpu:0", node("1"), 2),
    "local names have no machine": (HEAVY, 32, "cuda:0", ["cuda:1"], 2),
}  # fmt: skip


@pytest.mark.parametrize(("cost", "batch", "device", "others", "ranks"), WIDTHS.values(), ids=WIDTHS)
def test_how_many_devices_a_target_should_have(
    cost: StepCost, batch: int, device: str, others: list[str], ranks: int
) -> None:
    width = best_width(cost, batch, device, others)
    assert width.ranks == ranks
    assert ("below 1.2" in width.reason) == (ranks == 1 and bool(others) and batch > 1)
    assert width.speedup == 1 if ranks == 1 else width.speedup >= 1.2


def test_devices_of_another_kind_are_no_company_and_those_of_the_same_machine_come_first() -> None:
    assert suitable("n/cpu:0", ["m/cpu:0", "n/cpu:1", "n/H200:0"]) == ["n/cpu:1", "m/cpu:0"]
    assert link_among(["n/cpu:0", "n/cpu:1"]).latency_s < link_among(["n/cpu:0", "m/cpu:1"]).latency_s


def study(trials: int = 2, cost: StepCost | None = HEAVY, devices: int = 2, **changes: Any) -> Study:
    """A study whose trials are done: only targets are left."""
    spec = {"trials": trials, "top_k": 1, "eager": 1.0, "transfer_check": "off", "fusion": "auto"}
    made = Study(StudySpec.from_dict({"workload": "w", **spec, **changes.pop("spec", {})}), FACTS)
    made.state.facts = replace(FACTS, **changes)
    made.apply(DevicesChanged(tuple(f"n/cpu:{index}" for index in range(devices))))
    searched(made, cost)
    return made


def searched(made: Study, cost: StepCost | None) -> None:
    """Answer everything until no trial is left."""
    for now in range(20):
        actions = [a for a in made.decide(float(now)) if isinstance(a, Profile | StartContainer)]
        for action in actions:
            if isinstance(action, Profile):
                made.apply(profiled(action, cost))
            else:
                values = {m.trial: {"accuracy": 1 / (2 + m.trial)} for m in action.members}
                made.apply(Reported(action.run, action.until_epoch, values))
                if made.state.search_over():
                    return
                made.apply(ContainerEnded(action.run, float(now), "finished", action.until_epoch))
    raise AssertionError("the search did not end")


def profiled(action: Profile, cost: StepCost | None) -> Profiled:
    shapes = [
        {
            "shape": shape, "batch_size": 32, "steps_per_epoch": 20, "step_s": {"1": 1e-3, "2": 1.1e-3},
            "bytes": {"1": 1000, "2": 1500}, "free_bytes": 10_000, "fusable": True, "reason": None,
        }
        for shape in action.shapes
    ]  # fmt: skip
    if cost is None:
        return Profiled(action.run, 0.0, tuple(shapes), 0.1)
    each = [dict.fromkeys(action.shapes, v) for v in (cost.whole_s, cost.half_s, cost.gradient_bytes)]
    return Profiled(action.run, 0.0, tuple(shapes), 0.1, *each)


def end_containers(made: Study, now_s: float = 30.0) -> list[Any]:
    for container in made.state.active_containers():
        made.apply(ContainerEnded(container.id, now_s, "finished", container.until_epoch))
    return made.decide(now_s)


def targets_of(actions: list[Any]) -> list[tuple[str, ...]]:
    return [action.devices for action in actions if isinstance(action, StartTarget)]


def wide(**changes: Any) -> tuple[Study, StartTarget]:
    made = study(**changes)
    [start] = [a for a in end_containers(made) if isinstance(a, StartTarget)]
    return made, start


def test_the_last_target_takes_every_idle_device() -> None:
    made, start = wide(devices=3)
    assert start.devices == ("n/cpu:0", "n/cpu:1", "n/cpu:2")
    [target] = made.targets
    assert "times as fast, predicted" in str(target.note)
    assert made.state.busy_devices() == set(start.devices)
    assert made.devices_of(start.run) == list(start.devices)
    assert made.decide(31.0) == []


REFUSALS = {
    "batches that cannot be divided": ({"undivided": "BatchNorm1d needs the whole batch"}, "BatchNorm1d"),
    "a step that was not measured": ({"cost": None}, "was not measured"),
    "a step too small": ({"cost": StepCost(1e-3, 6e-4, 400_000)}, "below 1.2"),
    "too short a training": ({"cost": StepCost(1e-2, 5.1e-3, 400), "spec": {"epochs": 1}}, "long enough"),
}


@pytest.mark.parametrize(("changes", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_why_a_target_stays_on_one_device(changes: dict[str, Any], reason: str) -> None:
    made, start = wide(**changes)
    assert start.devices == ("n/cpu:0",)
    assert reason in str(made.targets[0].row()["note"])


def test_every_target_gets_a_device_before_one_gets_two() -> None:
    made = study(trials=3, devices=3, spec={"top_k": 2})
    assert targets_of(end_containers(made)) == [("n/cpu:0", "n/cpu:1"), ("n/cpu:2",)]


def test_a_fused_container_is_split_before_a_target_is_widened() -> None:
    spec = {"workload": "w", "trials": 4, "fusion": 4, "eager": 1.0, "transfer_check": "off", "top_k": 1}
    made = Study(StudySpec.from_dict(spec), FACTS)
    made.apply(DevicesChanged(("n/cpu:0",)))
    [profile] = made.decide(0.0)
    assert isinstance(profile, Profile)
    found = profiled(profile, HEAVY)
    slow = tuple({**row, "step_s": {"1": 1.0, "2": 2.0, "8": 8.0}} for row in found.profiles)
    made.apply(replace(found, profiles=slow))
    [container] = made.decide(1.0)
    assert isinstance(container, StartContainer)
    made.state.targets[0] = Target(0, state="running", run="t9", device="n/cpu:1", attempts=1)
    made.apply(DevicesChanged(("n/cpu:0", "n/cpu:1", "n/cpu:2")))
    assert spare_devices(made.state, ["n/cpu:2"]) == []
    assert made.decide(2.0) == [StopRun(container.run, pause=True)]


def test_bubbles_of_other_jobs_are_never_taken() -> None:
    made = study()
    made.apply(DevicesChanged(("n/cpu:0", "bubble:a")))
    assert targets_of(end_containers(made)) == [("n/cpu:0",)]


def running_alone(**changes: Any) -> tuple[Study, StartTarget]:
    """A target that began while there was one device only."""
    made = study(**changes)
    made.apply(DevicesChanged(("n/cpu:0",)))
    [start] = [a for a in end_containers(made) if isinstance(a, StartTarget)]
    assert start.devices == ("n/cpu:0",)
    return made, start


def test_a_running_target_pauses_once_to_go_on_with_a_device_that_has_become_idle() -> None:
    made, start = running_alone()
    made.apply(TargetReported(start.run, 3, {"accuracy": 0.5}, 30.0))
    made.apply(DevicesChanged(("n/cpu:0", "n/cpu:1")))
    assert made.decide(40.0) == [StopRun(start.run, pause=True)]
    assert made.decide(41.0) == []
    made.apply(TargetCheckpointed(start.run, 4, "t0-4.pt"))
    made.apply(TargetEnded(start.run, 42.0, "paused", 0.5, "m.safetensors"))
    [again] = made.decide(42.0)
    assert isinstance(again, StartTarget)
    assert (again.devices, again.checkpoint) == (("n/cpu:0", "n/cpu:1"), "t0-4.pt")
    assert made.targets[0].attempts == 1
    assert made.targets[0].metric is None  # the model of a paused target is no result

    # it has to give one back, and does not pause for another a second time
    made.apply(DevicesChanged(("n/cpu:0",)))
    made.apply(TargetEnded(again.run, 50.0, "paused"))
    [third] = made.decide(50.0)
    assert isinstance(third, StartTarget)
    assert third.devices == ("n/cpu:0",)
    made.apply(DevicesChanged(("n/cpu:0", "n/cpu:1")))
    assert made.decide(51.0) == []


@pytest.mark.parametrize("epoch", [99, 100])
def test_a_target_that_is_nearly_done_is_left_alone(epoch: int) -> None:
    made, start = running_alone()
    made.apply(TargetReported(start.run, epoch, {"accuracy": 0.5}, 30.0))
    made.apply(DevicesChanged(("n/cpu:0", "n/cpu:1")))
    assert made.decide(40.0) == []


def test_what_would_gain_less_than_its_interruption_costs_is_left_alone() -> None:
    made, start = running_alone(cost=StepCost(5e-3, 2.6e-3, 4000))  # ten seconds in all
    made.apply(DevicesChanged(("n/cpu:0", "n/cpu:1")))
    assert made.decide(40.0) == []
    assert start.run in made.active_runs()


def test_a_wide_target_gives_a_device_to_a_check_that_somebody_wants() -> None:
    made, start = wide()
    made.apply(TransferWanted())
    assert made.decide(40.0) == [StopRun(start.run, pause=True)]
    made.apply(TargetEnded(start.run, 41.0, "paused"))
    kinds = [type(action).__name__ for action in made.decide(41.0)]
    assert kinds == ["StartTarget", "CheckTransfer"]
    assert [len(target.devices) for target in made.targets] == [1]


def test_after_a_loss_it_goes_on_from_its_checkpoint_with_what_is_left() -> None:
    made, start = wide(devices=3)
    made.apply(TargetCheckpointed(start.run, 7, "t0-7.pt"))
    made.apply(RunLost(start.run, 40.0, "its process was killed by SIGKILL"))
    made.apply(DevicesChanged(("n/cpu:0", "n/cpu:2")))
    [again] = made.decide(41.0)
    assert isinstance(again, StartTarget)
    assert (again.devices, again.checkpoint) == (("n/cpu:0", "n/cpu:2"), "t0-7.pt")
    made.apply(RunLost(again.run, 50.0, "its process was killed by SIGKILL"))
    [last] = made.decide(51.0)
    assert isinstance(last, StartTarget)
    assert last.devices == ("n/cpu:0",)  # the last attempt takes no risk
    assert "were lost before" in str(made.targets[0].note)


def test_what_several_devices_cannot_carry_out_one_device_tries_from_the_checkpoint() -> None:
    made, start = wide()
    made.apply(TargetCheckpointed(start.run, 7, "t0-7.pt"))
    made.apply(RunLost(start.run, 40.0, "DistNetworkError: no route to host", broken=True))
    [again] = made.decide(41.0)
    assert isinstance(again, StartTarget)
    assert (again.devices, again.checkpoint) == (("n/cpu:0",), "t0-7.pt")
    assert any("goes on on one device" in warning for warning in made.warnings)
    assert made.decide(42.0) == []  # nor is it widened later


def test_a_device_that_is_taken_back_costs_no_attempt() -> None:
    made, start = wide()
    made.apply(RunLost(start.run, 40.0, "the device was taken back", taken=True))
    assert made.targets[0].attempts == 0


def test_a_cut_while_it_pauses_keeps_its_model() -> None:
    made, start = running_alone()
    made.apply(DevicesChanged(("n/cpu:0", "n/cpu:1")))
    assert made.decide(40.0) == [StopRun(start.run, pause=True)]
    made.apply(Cut("deadline"))
    assert made.decide(41.0) == [StopRun(start.run, pause=False)]
    made.apply(TargetEnded(start.run, 42.0, "paused", 0.7, "m.safetensors"))
    best = made.best()
    assert best is not None
    assert (best["metric"], best["model"]) == (0.7, "m.safetensors")


def test_a_snapshot_keeps_wide_targets_and_old_ones_load_as_they_were() -> None:
    made, start = wide()
    document = json.loads(json.dumps(made.snapshot(), allow_nan=False))
    again = Study.restore(document)
    assert again.devices_of(start.run) == list(start.devices)
    assert again.decide(50.0) == made.decide(50.0)

    for name in ("target_half_s", "target_bytes"):
        del document[name]
    del document["facts"]["undivided"]
    for row in document["targets"]:
        for name in ("beside", "note", "pausing", "paused", "widened", "alone"):
            del row[name]
    old = Study.restore(document)
    assert old.devices_of(start.run) == ["n/cpu:0"]
    assert old.decide(50.0) == []
