"""Two studies and a training job compete for two cores under quotas, as real processes; nothing is lost.

A guest study runs on borrowed cores. The owners' training job needs both and takes them; a study of a higher
class takes them from the training job; each victim goes on from its checkpoint.
"""

import threading
import time
from collections import Counter

import pytest
from django.db import connection

from cluster.core.bodies import read_quota
from cluster.models import DayUsage, Device, Membership, QueueEntry, Team, User
from cluster.services.devices import record_discovery
from cluster.services.quotas import set_quota
from jobs.core.body import parse_body
from jobs.models import Iteration, Job, TrainingRun
from jobs.services.coordination import coordinate
from jobs.services.grants import grant_of
from jobs.services.lifecycle import cancel_job
from jobs.services.submission import submit_job
from journal.queries import events_after
from tuning.models import Container, Trial
from workers.discovery import this_machine
from workers.trainer.parallel.data import Packer, load_corpus
from workers.trainer.parallel.local import LocalProcesses
from workers.training.driver import drive_training
from workers.tuner.driver import drive_study

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.platform,
    pytest.mark.timeout(600),
]
PATIENCE_S = 240
STEPS = 120
TRIALS, EPOCHS = 4, 20
GUEST = {"trials": TRIALS, "epochs": EPOCHS, "scaling": 1, "fusion": "off", "min_runtime_s": 0}
GUEST |= {"scheduler": "fifo"}  # every trial is trained to its last epoch
GUEST |= {"bubbles": "no"}  # it has to wait for devices
TRAINING = {
    "workload": "pydoc-gpt",
    "layout": {"replicas": [{"stages": [{"layers": 2}, {"layers": 2}]}]},
    "microbatches": 2,
    "steps": STEPS,
    "checkpoint_every": 100_000,
    "min_runtime_s": 0,
}
URGENT = {"workload": "digits-mlp", "trials": 1, "epochs": 1, "scaling": 1, "fusion": "off", "class": 1}
URGENT |= {"bubbles": "no"}


class Drivers:
    """What the workers of a platform do: drive whoever has devices and no driver."""

    def __init__(self) -> None:
        self.threads: dict[Job, threading.Thread] = {}

    def look(self) -> None:
        coordinate()
        running = QueueEntry.objects.filter(state__in=["running", "stopping"]).values("job_id")
        for job in Job.objects.filter(pk__in=running, state__in=["queued", "running"]):
            if job not in self.threads or not self.threads[job].is_alive():
                self.threads[job] = threading.Thread(target=self._drive, args=(job,), daemon=True)
                self.threads[job].start()

    @staticmethod
    def _drive(job: Job) -> None:
        try:
            if job.kind == "training":
                drive_training(job.pk, lambda devices: LocalProcesses())
            else:
                drive_study(job.pk)
        finally:
            connection.close()

    def until(self, condition) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            found = [(j.name, j.state, j.substate, j.reason) for j in Job.objects.order_by("created_at")]
            assert time.monotonic() < deadline, found
            assert not {state for _, state, _, _ in found} & {"failed", "cancelled"}, found
            self.look()
            time.sleep(0.1)

    def end(self) -> None:
        for job in Job.objects.filter(state__in=["queued", "running"]):
            cancel_job(job_id=job.pk, actor="the test")
        for thread in self.threads.values():
            thread.join(PATIENCE_S)


@pytest.fixture
def drivers(submit):
    drivers = Drivers()
    yield drivers
    drivers.end()


@pytest.fixture
def submit(submit_study, settings, tmp_path):
    """Submit for the guests' team, or for the owners, who are guaranteed both cores."""
    settings.DATA_DIR, settings.ARTIFACT_DIR = tmp_path, tmp_path / "artifacts"
    record_discovery([this_machine(max_devices=2)])
    team, owner = Team.objects.create(slug="owners", name="Owners"), User.objects.create(username="joan")
    Membership.objects.create(team=team, user=owner, role="researcher")
    quota = read_quota({"quotas": [{"kind": "cpu", "guaranteed": Device.objects.count()}]})
    set_quota(team_id=team.pk, body=quota, actor="root")

    def submit(kind: str, name: str, spec: dict) -> Job:
        if name == "guest":
            return submit_study(**spec)
        body = parse_body({"kind": kind, "name": name, "spec": spec})
        return submit_job(body=body, team=team, owner=owner, actor="joan")

    return submit


def state(job: Job) -> str:
    return Job.objects.get(pk=job.pk).state


def test_two_studies_and_a_training_job_share_two_cores_under_quotas_and_nothing_is_lost(submit, drivers):
    guest = submit("study", "guest", GUEST)
    drivers.until(lambda: Trial.objects.filter(job=guest, epochs__gte=1).exists())

    training = submit("training", "gpt", TRAINING)
    drivers.until(lambda: TrainingRun.objects.filter(job=training, step__gte=3).exists())
    entry = QueueEntry.objects.get(pk=guest.pk)
    assert (entry.state, entry.evictions, state(guest)) == ("waiting", 1, "queued")
    assert not Container.objects.filter(job=guest, end_s=None).exists()
    assert len(grant_of(training.pk).devices) == Device.objects.count()

    urgent = submit("study", "urgent", URGENT)
    drivers.until(lambda: state(urgent) == "completed")
    left_at = TrainingRun.objects.get(job=training)
    assert QueueEntry.objects.get(pk=training.pk).evictions == 1
    assert 0 < left_at.checkpoint_step <= left_at.step < STEPS  # it left with a checkpoint, before its end

    drivers.until(lambda: state(training) == "completed" and state(guest) == "completed")
    check_training(training, left_at.checkpoint_step)
    check_study(guest)
    usage = dict(DayUsage.objects.values_list("team__slug", "borrowed_device_s"))
    assert usage["demo"] > 0
    assert usage["owners"] == 0


def check_training(job: Job, left_at: int) -> None:
    """Every step once, in two runs, each on exactly the samples that come next in the stream."""
    rows = list(Iteration.objects.filter(run=job.pk).order_by("step"))
    assert [row.step for row in rows] == list(range(1, STEPS + 1))
    assert {row.epoch for row in rows[:left_at]} & {row.epoch for row in rows[left_at:]} == set()
    shape = Job.objects.get(pk=job.pk).spec
    packer = Packer(
        load_corpus(shape["parameters"]["context"]), shape["parameters"]["microbatch_tokens"], shape["seed"]
    )
    cursor, expected = 0, []
    for _ in rows:
        batches, cursor = packer.pack(cursor, shape["microbatches"])
        expected.append(sum(packer.tokens(batch) for batch in batches))
    assert [row.tokens for row in rows] == expected


def check_study(job: Job) -> None:
    """Every trial was trained for exactly its epochs, reported each once, and ended once."""
    trials = {trial.number: trial for trial in Trial.objects.filter(job=job)}
    assert {number: trial.epochs for number, trial in trials.items()} == dict.fromkeys(range(TRIALS), EPOCHS)
    assert {trial.state for trial in trials.values()} == {"completed"}
    told = events_after(Job.objects.get(pk=job.pk).stream, 0)
    ends = Counter(event.data["trial"] for event in told if event.kind == "trial.finished")
    assert ends == Counter(range(TRIALS))
