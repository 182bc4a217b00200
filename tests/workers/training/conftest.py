"""A training job on real ranks, and a recovery worker that takes its messages straight from the outbox."""

import threading
import time
from uuid import UUID

import pytest
from django.db import connection

from cluster.models import Membership, Team, User
from cluster.services.devices import FoundDevice, FoundNode, record_discovery
from jobs.core.body import parse_body
from jobs.models import Job, TrainingRun
from jobs.services.lifecycle import cancel_job
from jobs.services.submission import submit_job
from journal.models import OutboxMessage
from telemetry.models import Verdict
from telemetry.services.recovery import answer_verdict, unanswered
from workers.trainer.parallel.local import LocalProcesses
from workers.training.driver import drive_training

PIPELINE = {"stages": [{"layers": 2, "tensor_parallel": 1}, {"layers": 2, "tensor_parallel": 1}]}
PATIENCE_S = 240.0


class Running:
    """A training job with its driver in a thread."""

    def __init__(self, job: Job) -> None:
        self.job_id = job.pk
        self.thread: threading.Thread | None = None

    def drive(self) -> None:
        self.thread = threading.Thread(target=self._drive, name="driver", daemon=True)
        self.thread.start()

    def _drive(self) -> None:
        try:
            drive_training(self.job_id, lambda devices: LocalProcesses())
        finally:
            connection.close()

    @property
    def job(self) -> Job:
        return Job.objects.get(pk=self.job_id)

    @property
    def run(self) -> TrainingRun:
        return TrainingRun.objects.get(pk=self.job_id)

    def recover(self) -> None:
        """Do what the recovery worker would: answer verdicts whose message came or whose rest is over."""
        for message in list(OutboxMessage.objects.filter(task="recovery.answer")):
            message.delete()
            answer_verdict(UUID(message.args[0]))
        for verdict_id in unanswered():
            answer_verdict(verdict_id)

    def until(self, condition, what: str = "") -> object:
        """Wait for a condition, recovering meanwhile; fail with what the job says of itself."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.recover()
            if found := condition():
                return found
            if not (self.thread and self.thread.is_alive()) and not condition():
                break
            time.sleep(0.2)
        job, run = self.job, self.run
        answers = list(Verdict.objects.values_list("kind", "state", "factor", "answer"))
        raise AssertionError(
            f"{what}: {job.state} {job.substate} {job.reason}, step {run.step}, {answers}, {run.health}"
        )

    def end(self) -> Job:
        """Cancel the job if it still runs, and wait for its driver."""
        if self.job.state in ("queued", "running"):
            cancel_job(job_id=self.job_id, actor="test")
        if self.thread:
            self.thread.join(PATIENCE_S)
            assert not self.thread.is_alive()
        return self.job


@pytest.fixture
def people(db):
    team = Team.objects.create(slug="demo", name="Demo")
    found = {}
    for name, role in (("ada", "researcher"), ("grace", "admin")):
        found[name] = User.objects.create(username=name)
        Membership.objects.create(team=team, user=found[name], role=role)
    return found


@pytest.fixture
def train(people, settings, tmp_path, broker_at):
    """Submit a small training job on two replicas of two stages; end it after the test."""
    # With a broker that takes them, messages would leave the outbox before `recover` reads them.
    broker_at(f"redis+socket://{tmp_path}/no-broker.sock")
    settings.DATA_DIR, settings.ARTIFACT_DIR = tmp_path, tmp_path / "artifacts"
    devices = tuple(FoundDevice(i, "cpu", 8 << 30) for i in range(4))
    record_discovery([FoundNode("n0", "127.0.0.1", 4, 32 << 30, devices)])
    started: list[Running] = []

    def train(**spec):
        wanted = {
            "workload": "pydoc-gpt",
            "layout": {"replicas": [PIPELINE, PIPELINE]},
            "microbatches": 8,
            "steps": 100_000,
            "checkpoint_every": 50,
        }
        body = parse_body({"kind": "training", "name": "gpt", "spec": wanted | spec})
        job = submit_job(body=body, team=Team.objects.get(), owner=people["ada"], actor="ada")
        started.append(Running(job))
        started[-1].drive()
        return started[-1]

    yield train
    for running in started:
        running.end()
