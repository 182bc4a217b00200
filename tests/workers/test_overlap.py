"""An overlap job from queued to a stored plan, through a process of its own."""

import json

import pytest

from cluster.models import Membership, Team, User
from cluster.services.leases import take_lease
from jobs.core.body import parse_body
from jobs.models import Artifact
from jobs.queries import artifact_path
from jobs.services.submission import submit_job
from workers.overlap import run_overlap

pytestmark = pytest.mark.django_db(transaction=True)

OWN = """
import forebay
import torch.distributed._functional_collectives as functional


def program():
    def step(params, inputs):
        return functional.all_reduce(inputs["x"] @ params["w"], "sum", "tp")

    return forebay.Program(step, {"w": (8, 8)}, {"x": (4, 8)}, {"tp": [0, 1]}, {"x": 0})
"""


@pytest.fixture
def submit(db, settings, tmp_path, monkeypatch):
    settings.ARTIFACT_DIR = tmp_path / "artifacts"
    (tmp_path / "own_overlap.py").write_text(OWN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    team = Team.objects.create(slug="demo", name="Demo")
    user = User.objects.create(username="ada")
    Membership.objects.create(team=team, user=user, role="researcher")

    def call(**spec):
        body = parse_body({"kind": "overlap", "spec": spec})
        return submit_job(body=body, team=team, owner=user, actor="ada")

    return call


def test_a_job_ends_with_a_plan_and_a_trace(submit):
    job = submit(program="own_overlap:program", tiles=2, policy="round-robin")
    run_overlap(job.pk)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("completed", "")
    assert job.summary["tiles"] == 2
    assert job.summary["verification"]["passed"]
    plan = Artifact.objects.get(pk=job.summary["plan_artifact"])
    document = json.loads(artifact_path(plan).read_text())
    assert sorted(document["graphs"]) == ["1", "2", "3", "4"]
    assert [row["policy"] for row in document["policies"]] == ["serial", "round-robin", "exact", "bucketed"]
    assert Artifact.objects.get(pk=job.summary["trace_artifact"]).size_bytes > 100


def test_a_worker_leaves_a_job_alone_that_another_one_holds(submit):
    job = submit(program="own_overlap:program")
    take_lease(name=f"overlap:{job.pk}", owner="other", seconds=60)
    run_overlap(job.pk)
    job.refresh_from_db()
    assert job.state == "queued"
