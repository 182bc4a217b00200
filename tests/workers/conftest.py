"""A team, the registered workloads, this machine's devices: enough to run real studies."""

import pytest

from cluster.models import Membership, Team, User
from cluster.services.devices import record_discovery
from jobs.core.body import parse_body
from jobs.services.submission import submit_job
from tuning.services.workloads import describe_workloads, store_workloads
from workers.discovery import this_machine


@pytest.fixture(scope="session")
def described_workloads():
    return describe_workloads()


@pytest.fixture
def submit_study(db, described_workloads):
    store_workloads(described_workloads)
    record_discovery([this_machine()])
    team = Team.objects.create(slug="demo", name="Demo")
    user = User.objects.create(username="ada")
    Membership.objects.create(team=team, user=user, role="researcher")

    def submit(**spec):
        body = parse_body({"kind": "study", "name": "sweep", "spec": {"workload": "digits-mlp", **spec}})
        return submit_job(body=body, team=team, owner=user, actor="ada")

    return submit
