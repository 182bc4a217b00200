"""A study in a driver's hands, without the driver's processes."""

import pytest

from cluster.models import Membership, Team, User
from cluster.services.devices import FoundDevice, FoundNode, record_discovery
from cluster.services.leases import take_lease
from jobs.core.body import parse_body
from jobs.services.coordination import coordinate
from jobs.services.submission import submit_job
from tuning.core.space import parse_space
from tuning.core.study import StudyFacts
from tuning.models import Workload
from tuning.services.driving import claim_study, take_up

# Longer names first: jsonb would turn them round, and with them what the sampler draws.
SPACE = {
    "momentum": {"type": "uniform", "low": 0.5, "high": 0.99},
    "lr": {"type": "loguniform", "low": 0.001, "high": 1.0},
}
FACTS = StudyFacts(metric="accuracy", mode="max", epochs=4, space=parse_space(SPACE))


@pytest.fixture
def study_job(db):
    team = Team.objects.create(slug="demo", name="Demo")
    user = User.objects.create(username="ada")
    Membership.objects.create(team=team, user=user, role="researcher")
    devices = (FoundDevice(0, "cpu"), FoundDevice(1, "cpu"))
    record_discovery([FoundNode("node", "127.0.0.1", 2, 0, devices)])
    Workload.objects.create(
        name="tiny", description={"space": SPACE, "metric": "accuracy", "mode": "max", "epochs": 4}
    )
    spec = {"workload": "tiny", "trials": 3, "epochs": 2, "scaling": 1, "fusion": "off"}
    body = parse_body({"kind": "study", "name": "sweep", "spec": spec})
    return submit_job(body=body, team=team, owner=user, actor="ada")


@pytest.fixture
def take(study_job):
    """Take the study up as a new driver would."""

    def take(owner, seconds=60.0):
        held = take_lease(name=f"study:{study_job.pk}", owner=owner, seconds=seconds)
        assert held is not None
        coordinate()
        job = claim_study(job_id=study_job.pk, held=held)
        return take_up(job=job, held=held, facts=FACTS)

    return take
