"""Two teams, people of every role, a study with trials, devices: enough to ask every address anything."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from cluster.core.roles import Scope
from cluster.models import Device, Membership, Node, Team, User
from jobs.core.body import parse_body
from jobs.models import Artifact, Job, Reconfiguration, TrainingRun
from jobs.services.artifacts import store_artifact
from jobs.services.reconfigurations import Proposal, propose
from jobs.services.submission import submit_job
from telemetry.core.states import VerdictKind
from telemetry.models import Verdict, WebhookDelivery
from telemetry.services import record_failure
from telemetry.services.verdicts import FoundVerdict, open_verdict
from telemetry.services.webhooks import create_webhook, send_test
from tuning.models import Container, Trial, Workload
from web.services.tokens import Made, create_token

SPACE = {
    "lr": {"type": "loguniform", "low": 0.001, "high": 1.0},
    "batch_size": {"type": "choice", "values": [32, 64]},
}
ALL_SCOPES = [scope.value for scope in Scope]
ROLES = ("viewer", "researcher", "operator", "admin")


@dataclass
class World:
    """What there is, and ways to ask as somebody."""

    team: Team
    foreign_team: Team
    people: dict[str, User]
    device: Device
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))
    tokens: dict[str, str] = field(default_factory=dict, repr=False)

    def token(self, name: str, **options: Any) -> Made:
        """Create a token for a person."""
        wanted = {"name": "test", "scopes": ALL_SCOPES, **options}
        return create_token(user=self.people[name], actor=name, **wanted)

    def ask(self, name: str | None, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request as somebody with a token of all scopes, or as nobody."""
        if name is not None:
            if name not in self.tokens:
                self.tokens[name] = self.token(name).text
            headers = {"Authorization": f"Bearer {self.tokens[name]}", **headers}
        return self.send(method, path, body, **headers)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request; bytes go as they are, anything else as JSON."""
        kind = headers.pop("Content-Type", "application/json")
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self.client.generic(method, path, content, content_type=kind, headers=headers)

    def submit(self, name: str = "researcher", team: Team | None = None, **spec: Any) -> Job:
        """Submit a study."""
        body = parse_body({"kind": "study", "name": "sweep", "spec": {"workload": "tiny", **spec}})
        return submit_job(body=body, team=team or self.team, owner=self.people[name], actor=name)


@pytest.fixture(autouse=True)
def fresh_rates():
    """Let no test use up the allowance of another."""
    cache.clear()


@pytest.fixture
def world(db) -> World:
    """Build the world."""
    team = Team.objects.create(slug="demo", name="Demo")
    foreign_team = Team.objects.create(slug="rivals", name="Rivals")
    people = {name: User.objects.create(username=name) for name in (*ROLES, "stranger", "loner")}
    people["root"] = User.objects.create(username="root", is_superuser=True)
    for name in ROLES:
        Membership.objects.create(team=team, user=people[name], role=name)
    Membership.objects.create(team=foreign_team, user=people["stranger"], role="admin")
    description = {"space": SPACE, "metric": "accuracy", "mode": "max", "epochs": 4, "kind": "class"}
    Workload.objects.create(name="tiny", description=description)
    node = Node.objects.create(name="n0", cpus=2, seen_at=timezone.now())
    device = Device.objects.create(node=node, index=0, kind="cpu", seen_at=timezone.now())
    return World(team, foreign_team, people, device)


@pytest.fixture
def job(world: World) -> Job:
    """A study of the team `demo` with three trials, a container and a failure."""
    job = world.submit(trials=3)
    for number, metric in enumerate([0.5, None, 0.9]):
        config = {"lr": 0.01 * (number + 1), "batch_size": 32}
        Trial.objects.create(
            job=job, number=number, config=config, metric=metric, state="completed", epochs=4
        )
    Container.objects.create(job=job, run="c0", trials=[0, 1], device_label="cpu:0", start_s=0.0, end_s=2.0)
    record_failure(kind="trial.failed", message="it broke", job=job, device=world.device)
    return job


@pytest.fixture
def artifact(job: Job, tmp_path: Path, settings) -> Artifact:
    """A stored file of the job."""
    settings.ARTIFACT_DIR = str(tmp_path / "artifacts")
    source = tmp_path / "model"
    source.write_bytes(b"weights" * 1000)
    return store_artifact(job=job, source=source, name="../täg\r\net-2.safetensors", kind="model")


@pytest.fixture
def training_job(world: World) -> Job:
    """A training job of the researcher that runs on four ranks."""
    spec = {
        "workload": "pydoc-gpt",
        "layout": {"replicas": [{"stages": [{"layers": 2}, {"layers": 2}]}] * 2},
        "microbatches": 8,
    }
    body = parse_body({"kind": "training", "name": "gpt", "spec": spec})
    job = submit_job(body=body, team=world.team, owner=world.people["researcher"], actor="researcher")
    Job.objects.filter(pk=job.pk).update(state="running")
    TrainingRun.objects.filter(pk=job.pk).update(epoch=1)
    return Job.objects.get(pk=job.pk)


@pytest.fixture
def verdict(world: World, training_job: Job) -> Verdict:
    """Rank 1 of the training job is slow."""
    found = FoundVerdict(
        kind=VerdictKind.DEVICE_FAIL_SLOW,
        subject={"rank": 1, "replica": 0, "stage": 1, "node": "n0"},
        confidence=0.99,
        factor=2.5,
        first_step=40,
        detected_step=43,
        evidence=[{"test": "same_stage_peers", "value": 2.5, "threshold": 1.15, "samples": 44}],
    )
    return open_verdict(job_id=training_job.pk, found=found, device_id=world.device.pk)[0]


@pytest.fixture
def reconfiguration(training_job: Job, verdict: Verdict) -> Reconfiguration:
    """A plan for the training job that waits for an approval."""
    before = TrainingRun.objects.get(pk=training_job.pk).layout
    plan = json.loads(json.dumps(before))
    for replica, count in zip(plan["replicas"], (3, 5), strict=True):
        replica["microbatches"] = count
    proposal = Proposal(
        kind="rebalance",
        epoch=1,
        before=before,
        plan=plan,
        baseline_iteration_s=2.0,
        predicted_iteration_s=1.5,
        predicted_pause_s=0.2,
        verdict_id=verdict.pk,
    )
    return propose(job_id=training_job.pk, proposal=proposal, by_policy=False)


@pytest.fixture
def delivery(world: World) -> WebhookDelivery:
    """A test message of a webhook of the team."""
    url, admin = "https://alerts.example.org/x", world.people["admin"]
    made = create_webhook(team=world.team, user=admin, actor="admin", url=url, kinds=["verdict.opened"])
    return send_test(webhook_id=made.webhook.pk, actor="admin")
