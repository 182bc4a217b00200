"""When a run that says nothing is given up."""

import time

import pytest

from jobs.models import Job
from tuning.core.space import declared_space, loguniform
from tuning.core.study import Profile, Study, StudyFacts, StudySpec
from workers.ray_cluster import connect, ray
from workers.tuner.runner import LOADING_SECONDS, RayRunner, Run

SILENCE_S = 5.0


@pytest.fixture
def gate():
    """What a process still loads, until it is told that it is done."""

    class Gate:  # in here, so that it travels to the actor's process whole
        def __init__(self) -> None:
            self.done = False

        def load(self) -> None:
            while not self.done:
                time.sleep(0.02)

        def finish(self) -> None:
            self.done = True

    connect()
    actor = ray.remote(Gate).options(num_cpus=0, max_concurrency=2).remote()
    yield actor
    ray.kill(actor)


def quiet_for(run: Run, seconds: float) -> Run:
    run.heard = time.monotonic() - seconds
    return run


def test_silence_counts_once_the_process_has_loaded(gate):
    runner, loading = RayRunner(None, SILENCE_S), gate.load.remote()
    run = Run("c1", "cpu:0", actor=None, loading=loading)
    assert runner._lose_if_silent(quiet_for(run, 10 * SILENCE_S)) == []

    ray.get([gate.finish.remote(), loading])
    assert runner._lose_if_silent(quiet_for(run, 10 * SILENCE_S)) == []  # it begins to count now
    (lost,) = runner._lose_if_silent(quiet_for(run, 10 * SILENCE_S))
    assert lost.reason == "no report for 5 s"


def test_a_process_that_never_loads_is_given_up_too(gate):
    run = Run("c1", "cpu:0", actor=None, loading=gate.load.remote())
    (lost,) = RayRunner(None, SILENCE_S)._lose_if_silent(quiet_for(run, SILENCE_S + LOADING_SECONDS + 1))
    assert lost.run == "c1"


def test_a_profile_is_told_its_budget_and_that_full_models_are_to_be_measured(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    facts = StudyFacts("accuracy", "max", 9, declared_space({"lr": loguniform(1e-4, 1.0)}))
    action = Profile("p0", "cpu:0", {"{}": {"lr": 0.1}}, {"{}": 4}, epochs=9, full_width=True)
    order = RayRunner(Job(), SILENCE_S)._order(action, Study(StudySpec("w"), facts), 0.0)
    assert (order.epochs, order.full_width) == (9, True)
