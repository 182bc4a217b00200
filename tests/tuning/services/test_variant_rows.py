"""Targets of the second search are rows of their own beside the one of the same trial."""

import pytest

from tuning.core.space import choice, declared_space, loguniform
from tuning.core.study import Study as Brain
from tuning.core.study import StudyFacts, StudySpec
from tuning.core.study.records import Target as BrainTarget
from tuning.models import Container, Target
from tuning.services.rows import Rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def brain():
    space = declared_space({"lr": loguniform(1e-3, 1.0), "dropout": choice([0.0])})
    made = Brain(StudySpec.from_dict({"workload": "w", "trials": 1}), StudyFacts("accuracy", "max", 3, space))
    made.state.add_trial({"lr": 0.1, "dropout": 0.0})
    made.state.targets[0] = BrainTarget(0, state="completed", metric=0.9, start_s=1.0, end_s=2.0)
    made.state.variants = [BrainTarget(0, 1, {"dropout": 0.3}, state="running", start_s=2.0)]
    return made


@pytest.fixture
def job(demo):
    owner = demo.person("ada")
    return demo.study(owner, demo.team_with(owner, "researcher"), trials=0)


def test_both_are_written_once_and_told_apart(job, brain):
    rows = Rows.of(job)
    kinds = [fact.kind for fact in rows.write(brain, {}, 3.0)]
    rows.committed()
    found = Target.objects.filter(job=job).order_by("variant").values_list("variant", "values", "state")
    assert list(found) == [(0, {}, "completed"), (1, {"dropout": 0.3}, "running")]
    assert kinds.count("target.finished") == kinds.count("target.started") == 1

    brain.state.variants[0].state, brain.state.variants[0].metric = "completed", 0.95
    again = Rows.of(job)  # as another driver would find it
    finished = [fact.data for fact in again.write(brain, {}, 4.0) if fact.kind == "target.finished"]
    assert [(data["trial"], data["variant"], data["metric"]) for data in finished] == [(0, 1, 0.95)]
    assert Target.objects.filter(job=job).count() == 2
    assert brain.best()["config"] == {"lr": 0.1, "dropout": 0.3}
    assert not Container.objects.filter(job=job).exists()
