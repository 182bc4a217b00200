"""A data-parallel target is shown on each of its devices, and why it has them."""

import pytest

from tuning.core.space import declared_space, loguniform
from tuning.core.study import Study as Brain
from tuning.core.study import StudyFacts, StudySpec
from tuning.core.study.records import Target as BrainTarget
from tuning.models import Target
from tuning.queries.spending import spending_of
from tuning.queries.timeline import timeline_of
from tuning.services.rows import Rows

pytestmark = pytest.mark.django_db
DEVICES = ["n/cpu:0", "n/cpu:1", "n/cpu:2"]


@pytest.fixture
def brain():
    facts = StudyFacts("accuracy", "max", 3, declared_space({"lr": loguniform(1e-3, 1.0)}))
    made = Brain(StudySpec.from_dict({"workload": "w", "trials": 1}), facts)
    made.state.add_trial({"lr": 0.1})
    made.state.targets[0] = BrainTarget(
        0,
        state="running",
        run="t1",
        device=DEVICES[0],
        beside=DEVICES[1:],
        start_s=1.0,
        note="2.1 times as fast",
    )
    return made


@pytest.fixture
def job(demo):
    owner = demo.person("ada")
    return demo.study(owner, demo.team_with(owner, "researcher"), trials=0)


def lanes(job) -> list[str]:
    return [lane["id"] for lane in timeline_of(job)["lanes"]]


def test_a_wide_target_has_a_lane_on_each_device_until_it_is_narrower(job, brain):
    rows = Rows.of(job)
    [started] = [fact.data for fact in rows.write(brain, {}, 3.0) if fact.kind == "target.started"]
    rows.committed()
    assert (started["beside"], started["note"]) == (DEVICES[1:], "2.1 times as fast")
    assert lanes(job) == DEVICES
    intervals = [one["label"] for lane in timeline_of(job)["lanes"] for one in lane["intervals"]]
    assert set(intervals) == {"target of trial #0, data-parallel on 3 devices"}
    job.study.spending = {"trial_device_s": 0.0}
    assert spending_of(job, 10.0)["idle"] == 30.0

    brain.state.targets[0].beside = []
    rows.write(brain, {}, 4.0)
    assert (lanes(job), Target.objects.get(job=job).beside) == (DEVICES[:1], [])
