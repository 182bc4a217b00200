"""A target on two Ray actors: losing one ends the run of both, and it goes on from its checkpoint."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from django.db import connection

from journal.queries import events_after
from tuning.core.study import RunLost, TargetReported, widening
from tuning.core.study.width import StepCost
from tuning.models import Target, Workload
from tuning.queries.timeline import timeline_of
from workers.ray_cluster import ray
from workers.trainer.describe import describe
from workers.tuner.driver import drive_study
from workers.tuner.runner import RayRunner

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.platform,
    pytest.mark.timeout(300),
]
REFERENCE = "laborious:Laborious"
EPOCHS = 60


SILENCE_S = 15.0


class Killer(threading.Thread):
    """Sends a signal to the process of a wide target's second device, once it has reported a few epochs."""

    def __init__(self, job, actors: dict, number: signal.Signals) -> None:
        super().__init__(daemon=True)
        self.job, self.actors, self.number = job, actors, number
        self.victim, self.at, self.over = None, 0, threading.Event()

    def run(self) -> None:
        try:
            while self.victim is None and not self.over.is_set():
                target = Target.objects.filter(job=self.job, state="running").exclude(beside=[]).first()
                if target is not None and len(target.curve) >= 4:
                    self.victim, self.at = target.beside[0], len(target.curve)
                    actor = self.actors[self.victim]
                    os.kill(ray.get(actor.__ray_call__.remote(lambda self: os.getpid())), self.number)
                time.sleep(0.02)
        finally:
            connection.close()


@pytest.fixture
def heard(monkeypatch) -> list:
    """Everything that the driver in this process heard of its runs."""
    events = []
    real = RayRunner.listen

    def noting(runner, seconds, now_s):
        found = real(runner, seconds, now_s)
        events.extend(found)
        return found

    monkeypatch.setattr(RayRunner, "listen", noting)
    return events


@pytest.mark.parametrize(
    ("number", "reasons"),
    [
        (signal.SIGKILL, ["the process of {} died: "]),
        # With a rank that is held up the other waits for its gradients: whichever is missed first.
        (signal.SIGSTOP, ["{} did not answer for 15 s", "no report for 15 s"]),
    ],
)
def test_a_lost_rank_costs_at_most_one_epoch(
    submit_study, actors, heard, monkeypatch, settings, number, reasons
):
    if number == signal.SIGSTOP:
        settings.TRIAL_SILENCE_S = SILENCE_S
    folder = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(widening, "JOIN_S", 0.0)
    # What two devices bring is measured elsewhere; on a busy machine a few steps say little of it.
    monkeypatch.setattr(widening, "step_cost", lambda state, shape: StepCost(0.1, 0.05, 1000))
    Workload.objects.create(name=REFERENCE, description=describe(REFERENCE))
    job = submit_study(
        workload=REFERENCE, trials=2, epochs=1, target_epochs=EPOCHS, scaling=4, top_k=1, eager=1.0,
        transfer_check="off", bubbles="no",
    )  # fmt: skip
    killer = Killer(job, actors, number)
    killer.start()
    drive_study(job.pk)
    killer.over.set()
    killer.join(30)
    job.refresh_from_db()
    assert job.state == "completed", job.reason
    assert killer.victim is not None, "no wide target was seen at work"

    losses = [event for event in heard if isinstance(event, RunLost)]
    assert len(losses) == 1, losses
    assert any(losses[0].reason.startswith(reason.format(killer.victim)) for reason in reasons)
    lost = losses[0].run
    reports = [(event.run, event.epoch) for event in heard if isinstance(event, TargetReported)]
    last = max(epoch for run, epoch in reports if run == lost)
    after = reports[max(i for i, (run, _) in enumerate(reports) if run == lost) + 1 :]
    assert last >= after[0][1] - 1 >= last - 1  # at most the epoch that was being trained is trained again

    decisions = [e.data["kind"] for e in events_after(job.stream, 0) if e.kind == "coordinator.decision"]
    assert "widen" in decisions
    target = Target.objects.get(job=job)
    assert [epoch for epoch, _ in target.curve] == list(range(1, EPOCHS + 1))
    assert (target.state, len(target.beside)) == ("completed", 1)
    assert "times as fast, predicted" in target.note
    assert job.summary["targets"][0]["beside"] == target.beside
    assert target_lanes(job) == {target.device_label, *target.beside}


def target_lanes(job) -> set[str]:
    lanes = timeline_of(job)["lanes"]
    return {lane["id"] for lane in lanes if any(one["kind"] == "target" for one in lane["intervals"])}
