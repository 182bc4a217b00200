"""A team, a person, a workload: enough to submit a study."""

import pytest

from cluster.models import Membership, Team, User
from tuning.models import Workload

SPACE = {
    "lr": {"type": "loguniform", "low": 0.001, "high": 1.0},
    "batch_size": {"type": "choice", "values": [32, 64]},
}


@pytest.fixture
def team(db):
    return Team.objects.create(slug="demo", name="Demo")


@pytest.fixture
def researcher(team):
    user = User.objects.create(username="ada")
    Membership.objects.create(team=team, user=user, role="researcher")
    return user


@pytest.fixture
def workload(db):
    return Workload.objects.create(
        name="tiny", description={"space": SPACE, "metric": "accuracy", "mode": "max", "epochs": 4}
    )
