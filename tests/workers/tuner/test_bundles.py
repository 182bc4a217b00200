"""What a study's driver carries out of the Coordinator's decisions, and what it tells of them."""

from types import SimpleNamespace
from uuid import uuid4

import pytest

from jobs.models import Job
from journal.models import Event
from tuning.core.space import declared_space, loguniform
from tuning.core.study import (
    DevicesChanged,
    RoomChanged,
    StartContainer,
    StartTarget,
    Study,
    StudyFacts,
    StudySpec,
)
from tuning.core.study.records import Target
from tuning.queries.decisions import decisions_of
from workers.tuner.bundles import Bundles, state_of

SPACE = declared_space({"lr": loguniform(1e-4, 1.0)})
FACTS = StudyFacts(metric="accuracy", mode="max", epochs=9, space=SPACE, samples=640, fusable=False)


def device(node):
    return SimpleNamespace(node=SimpleNamespace(name=node))


def begun(labels, trials=4, **spec) -> Study:
    study = Study(StudySpec("tiny", trials=trials, **spec), FACTS)
    study.apply(DevicesChanged(tuple(labels)))
    study.decide(0.0)
    return study


@pytest.fixture
def told(db):
    job = Job(pk=uuid4(), kind="study", spec={})
    rows = Event.objects.filter(stream_id=job.stream).order_by("seq")
    return job, lambda: [(row.data["kind"], row.data["subject"]) for row in rows]


def test_a_device_that_was_idle_for_long_goes_back_and_the_reason_is_told(told) -> None:
    job, decisions = told
    devices = {"n/cpu:0": device("n"), "n/cpu:1": device("n")}
    study, bundles = begun(["n/cpu:0"], trials=1), Bundles(job)
    assert bundles.releases(study, devices, {"n/cpu:1": 0.0}, 59.0) == []
    assert bundles.releases(study, devices, {"n/cpu:1": 0.0}, 61.0) == ["n/cpu:1"]
    assert decisions() == [("ask", "1"), ("release", "n/cpu:1")]
    reason = Event.objects.order_by("-seq").first().data["reason"]
    assert reason.startswith("idle for 61 s, more than 60 s")


def test_what_the_study_can_still_use_stays_and_the_last_device_always(told) -> None:
    job, decisions = told
    devices = {"n/cpu:0": device("n"), "n/cpu:1": device("n")}
    bundles = Bundles(job)
    assert bundles.releases(begun(["n/cpu:0"], trials=4), devices, {"n/cpu:1": 0.0}, 99.0) == []
    idle = dict.fromkeys(devices, 0.0)
    assert len(bundles.releases(begun([], trials=1), devices, idle, 99.0)) == 1
    assert decisions()[:2] == [("ask", "4"), ("ask", "1")]


def test_the_rules_are_told_how_a_study_stands() -> None:
    study = begun(["n/cpu:0", "n/cpu:1"], trials=5, devices=3)
    state = state_of(study, {"n/cpu:0": device("n"), "n/cpu:1": device("m")}, {})
    assert (state.trials_alive, state.largest_fusion, state.cap) == (5, 1, 3)
    assert sorted(state.containers.values()) == [1, 1]
    assert state.nodes == {"n/cpu:0": "n", "n/cpu:1": "m"}
    assert not state.target


@pytest.mark.parametrize(
    ("room_s", "words"), [(1.0, "its longest bubble holds"), (1e-9, "over several bubbles")]
)
def test_why_so_many_trials_share_a_bubble_is_told(told, room_s, words) -> None:
    job, decisions = told
    study = Study(StudySpec("tiny", trials=2), FACTS)
    study.apply(DevicesChanged(("bubble:a",)))
    study.apply(RoomChanged({"bubble:a": room_s}))
    [start] = [action for action in study.decide(0.0) if isinstance(action, StartContainer)]
    bundles = Bundles(job)
    bundles.fitted(study, start.run, "elsewhere", 1)
    bundles.fitted(study, start.run, "bubble:a", 1)
    assert decisions() == [("fuse", start.run)]
    assert words in Event.objects.get().data["reason"]


@pytest.mark.parametrize(("beside", "words"), [(("b",), "trains on 2 devices"), ((), "trains on one device")])
def test_on_how_many_devices_a_target_trains_is_told(told, beside, words) -> None:
    job, decisions = told
    study, bundles = begun(["a"], trials=1), Bundles(job)
    target = Target(0, state="running", run="t1", device="a", beside=list(beside), attempts=1)
    study.state.targets[0] = target
    start = StartTarget("t1", "a", 0, {}, 0, 9, None, beside=beside)
    bundles.widened(study, start)
    assert decisions() == []  # there was nothing to choose
    target.note = "a step would take less"
    bundles.widened(study, start)
    [decided] = decisions_of(job)
    assert (decided.what, decided.reason) == (f"target of trial #0 {words}", "a step would take less")
