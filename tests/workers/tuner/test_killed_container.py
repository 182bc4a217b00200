"""`kill -9` of the process that trains a fused container: only epochs since its checkpoint are lost."""

import json
import os
import signal
import threading
import time

import pytest
from django.db import connection

from journal.queries import events_after
from tuning.core.study import Study as Brain
from tuning.core.study import StudySpec, facts_from_json
from tuning.core.study.actions import Member
from tuning.models import Container, Study, Trial
from tuning.services.transfer import ask_transfer_check
from workers.ray_cluster import ray
from workers.trainer.container import run_container
from workers.trainer.orders import ContainerOrder, Setting
from workers.tuner.driver import drive_study

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.platform,
    pytest.mark.timeout(600),
]
SPACE = {
    "lr": {"type": "loguniform", "low": 0.001, "high": 0.05},
    "momentum": {"type": "uniform", "low": 0.5, "high": 0.9},
    "batch_size": {"type": "choice", "values": [32]},
}
TRIALS, EPOCHS, TOGETHER = 4, 100, 2


class Killer(threading.Thread):
    """Sends SIGKILL to the actor of the first fused container that has reported a few epochs."""

    def __init__(self, job, actors: dict) -> None:
        super().__init__(daemon=True)
        self.job, self.actors, self.victim, self.over = job, actors, None, threading.Event()

    def run(self) -> None:
        try:
            while self.victim is None and not self.over.is_set():
                grown = Container.objects.filter(job=self.job, end_s=None, epochs__gte=3, from_epoch=0)
                self.victim = next((c for c in grown if len(c.trials) > 1), None)
                time.sleep(0.01)
            if self.victim is not None:
                actor = self.actors[self.victim.device_label]
                os.kill(ray.get(actor.__ray_call__.remote(lambda self: os.getpid())), signal.SIGKILL)
        finally:
            connection.close()


def test_survivors_go_on_from_checkpoints_and_every_trial_ends_once(submit_study, actors, tmp_path):
    job = submit_study(
        trials=TRIALS, epochs=EPOCHS, space=SPACE, fusion=TOGETHER, scaling=8, top_k=1, target_epochs=1,
        eager=1.0,
    )  # fmt: skip
    ask_transfer_check(job_id=job.pk, actor="ada")
    killer = Killer(job, actors)
    killer.start()
    drive_study(job.pk)
    killer.over.set()
    killer.join(30)
    job.refresh_from_db()
    victim = killer.victim
    assert victim is not None, "no fused container was seen at work"
    assert job.state == "completed", job.reason

    lost = Container.objects.get(job=job, run=victim.run)
    assert (lost.outcome, len(lost.trials)) == ("lost", TOGETHER)
    finished = [e.data["trial"] for e in events_after(job.stream, 0) if e.kind == "trial.finished"]
    assert sorted(finished) == list(range(TRIALS))
    outcomes = set(Trial.objects.filter(job=job).values_list("state", "epochs", "reason"))
    assert outcomes == {("completed", EPOCHS, None)}
    later = Container.objects.filter(job=job, start_s__gte=lost.end_s, trials__overlap=lost.trials)
    assert {number for container in later for number in container.trials} >= set(lost.trials)
    assert all(container.from_epoch > 0 for container in later)

    study = Study.objects.get(pk=job.pk)
    assert study.transfer["coordinate_check"] == "passed", study.transfer["reason"]
    assert len(study.transfer["ranking"]) == TRIALS
    assert study.transfer_asked_at is None
    (check,) = [chore for chore in study.spending["chores"] if chore["kind"] == "check"]
    assert check["end_s"] > check["start_s"]

    survivor = Trial.objects.get(job=job, number=lost.trials[0])
    assert survivor.metric == pytest.approx(metric_without_a_kill(job, survivor, tmp_path), abs=0.01)


def metric_without_a_kill(job, trial: Trial, folder) -> float:
    """The metric that the trial reaches when it trains alone and undisturbed."""
    facts = facts_from_json(json.loads(Study.objects.get(pk=job.pk).facts))
    brain = Brain(StudySpec.from_dict(job.spec), facts)
    member = next(
        Member(one.number, one.config, one.seed)
        for one in map(brain.state.add_trial, brain.state.searcher.ask(TRIALS))
        if one.number == trial.number
    )
    assert member.config == trial.config
    setting = Setting("digits-mlp", str(folder), brain.data_seed, scaling=8, threads=1)
    reports = []
    run_container(ContainerOrder("c0", setting, (member,), 0, EPOCHS, fused=False), reports.append)
    last = [event for event in reports if getattr(event, "epoch", 0) == EPOCHS][-1]
    return last.metrics[trial.number]["accuracy"]
