"""When a study looks at its transfer, with what, and what follows from the answer."""

from typing import Any

import pytest

from tuning.core.space import choice, declared_space, loguniform
from tuning.core.study import (
    CheckTransfer,
    DevicesChanged,
    Finish,
    Profile,
    Profiled,
    RunLost,
    StartContainer,
    Study,
    StudyFacts,
    StudySpec,
    TransferChecked,
    TransferWanted,
)

SPACE = declared_space({"lr": loguniform(1e-4, 1.0), "batch_size": choice([32, 64])})


def study(devices: int = 2, **spec: Any) -> Study:
    facts = StudyFacts(metric="accuracy", mode="max", epochs=20, space=SPACE, samples=640)
    made = Study(StudySpec.from_dict({"workload": "w", "trials": 60, **spec}), facts)
    made.apply(DevicesChanged(tuple(f"cpu:{index}" for index in range(devices))))
    return made


def profiled(made: Study, target_step_s: float = 0.01) -> list[Any]:
    """Let the study measure its shapes, and return what it does next."""
    for action in made.decide(0.0):
        assert isinstance(action, Profile)
        shapes = [
            {"shape": shape, "batch_size": config["batch_size"], "steps_per_epoch": 400,
             "step_s": {"1": 0.002, "8": 0.004}, "bytes": {"1": 1000, "2": 1500}, "free_bytes": 10**9,
             "fusable": True, "reason": None}
            for shape, config in action.shapes.items()
        ]  # fmt: skip
        steps = dict.fromkeys(action.shapes, target_step_s)
        made.apply(Profiled(action.run, 1.0, tuple(shapes), 0.5, steps))
    return made.decide(1.0)


def test_a_search_that_is_expensive_is_checked_on_one_device_while_the_others_begin() -> None:
    made = study()
    actions = profiled(made)
    (check,) = [action for action in actions if isinstance(action, CheckTransfer)]
    assert len(check.members) == 8
    assert len({member.config["batch_size"] for member in check.members}) == 1
    assert [type(action) for action in actions if action is not check] == [StartContainer]
    made.apply(TransferChecked(check.run, 3.0, {"verdict": "passed", "rank_correlation": 0.9}, 2.0))
    assert not any(isinstance(action, CheckTransfer) for action in made.decide(3.0))
    assert made.state.transfer_s == 2.0
    again = Study.restore(made.snapshot())
    assert again.state.transfer == {"verdict": "passed", "rank_correlation": 0.9}
    assert again.state.chores[check.run].end_s == 3.0


@pytest.mark.parametrize("spec", [{"trials": 4, "epochs": 1}, {"scaling": 1}, {"transfer_check": "off"}])
def test_it_is_left_out_where_it_costs_too_much_or_nothing_has_to_transfer(spec: dict[str, Any]) -> None:
    assert not any(isinstance(action, CheckTransfer) for action in profiled(study(**spec)))


def test_it_is_made_on_demand_once_and_again_when_asked_again() -> None:
    made = study(devices=3, trials=2, epochs=1, fusion="off")
    made.apply(TransferWanted())
    (check,) = [action for action in made.decide(0.0) if isinstance(action, CheckTransfer)]
    made.apply(TransferWanted())  # one is under way
    made.apply(TransferChecked(check.run, 1.0, {"verdict": "failed", "reason": "layers grow"}, 1.0))
    assert any("layers grow" in warning for warning in made.warnings)
    assert not any(isinstance(action, CheckTransfer) for action in made.decide(1.0))
    made.apply(TransferWanted())
    again = [action for action in made.decide(2.0) if isinstance(action, CheckTransfer)]
    assert len(again) == 1


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [({"verdict": "passed"}, True), ({"verdict": "failed", "reason": "layers grow"}, False), (None, False)],
)
def test_a_required_check_comes_first_and_ends_a_study_that_does_not_pass(answer: Any, goes_on: bool) -> None:
    made = study(transfer_check="require", trials=6, fusion="off")
    (check,) = made.decide(0.0)
    assert isinstance(check, CheckTransfer)
    event = RunLost(check.run, 1.0, "killed") if answer is None else TransferChecked(check.run, 1.0, answer)
    made.apply(event)
    actions = made.decide(1.0)
    assert any(isinstance(action, StartContainer) for action in actions) == goes_on
    if not goes_on:
        (finish,) = [action for action in actions if isinstance(action, Finish)]
        assert finish.state == "cut"
        assert "transfer check did not pass" in str(finish.reason)
        assert {str(trial.state) for trial in made.trials} == {"cut"}


def test_a_snapshot_of_the_first_release_is_read() -> None:
    document = study().snapshot()
    for name in ("chores", "transfer", "transfer_wanted", "transfer_s"):
        del document[name]
    del document["spec"]["transfer_check"]
    assert Study.restore(document).state.transfer is None
