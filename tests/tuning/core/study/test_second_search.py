"""What does not transfer is held while surrogates are searched, and tried on the best target in the end."""

from typing import Any

import pytest

from tuning.core.space import choice, declared_space, loguniform, uniform
from tuning.core.study import (
    ContainerEnded,
    DevicesChanged,
    Finish,
    Reported,
    StartContainer,
    StartTarget,
    Study,
    StudyFacts,
    StudySpec,
    TargetEnded,
)

SPACE = declared_space({"lr": loguniform(1e-3, 1.0), "dropout": choice([0.0])})
HELD = declared_space({"dropout": uniform(0.0, 0.6)})


def accuracy(config: dict[str, Any]) -> float:
    """At full width a dropout of about 0.3 is best."""
    return round(0.5 + 0.2 * config["lr"] - (config["dropout"] - 0.3) ** 2, 6)


def lived(target_search: int, fail_variants: bool = False) -> tuple[Study, list[StartTarget], Finish]:
    """A study from beginning to end, restored from its snapshot on the way."""
    facts = StudyFacts("accuracy", "max", 3, SPACE, target_space=HELD if target_search else None)
    spec = {"workload": "w", "trials": 4, "fusion": "off", "eager": 1, "top_k": 2,
            "target_search": target_search}  # fmt: skip
    study = Study(StudySpec.from_dict(spec), facts)
    study.apply(DevicesChanged(("cpu:0",)))
    orders: list[StartTarget] = []
    for turn in range(100):
        study = Study.restore(study.snapshot())
        for action in study.decide(float(turn)):
            if isinstance(action, Finish):
                return study, orders, action
            if isinstance(action, StartContainer):
                metrics = {m.trial: {"accuracy": m.config["lr"]} for m in action.members}
                study.apply(Reported(action.run, 3, metrics))
                study.apply(ContainerEnded(action.run, float(turn), "finished", 3))
            if isinstance(action, StartTarget):
                orders.append(action)
                bad = fail_variants and action.variant
                study.apply(
                    TargetEnded(action.run, float(turn), "failed", reason="diverged")
                    if bad
                    else TargetEnded(action.run, float(turn), "completed", accuracy(action.config), "m")
                )
    raise AssertionError("the study never ended")


def test_the_best_target_is_trained_again_with_values_over_the_whole_range() -> None:
    study, orders, finish = lived(4)
    assert finish.state == "completed"
    first, second = [o for o in orders if not o.variant], [o for o in orders if o.variant]
    assert orders == first + second, "the second search waits for the targets of the first"
    assert {order.config["dropout"] for order in first} == {0.0}
    best = max(first, key=lambda order: accuracy(order.config))
    assert {(order.trial, order.config["lr"]) for order in second} == {(best.trial, best.config["lr"])}
    assert sorted(order.config["dropout"] for order in second) == pytest.approx([0.075, 0.225, 0.375, 0.525])
    document = study.best()
    assert document is not None
    assert document["config"]["dropout"] == pytest.approx(0.225) or document["config"]["dropout"] == 0.375
    assert document["trial"] == best.trial
    assert len(study.trial_table()) == 4
    assert {t.variant for t in study.targets} == {0, 1, 2, 3, 4}


def test_without_it_nothing_is_trained_twice_and_failures_leave_the_first_best() -> None:
    study, orders, _ = lived(0)
    assert {order.variant for order in orders} == {0}
    assert "variant" not in (study.best() or {})
    study, orders, finish = lived(3, fail_variants=True)
    assert (finish.state, (study.best() or {})["config"]["dropout"]) == ("completed", 0.0)
    assert sum(bool(order.variant) for order in orders) == 3
