"""A training job that runs, and a plan for it."""

import pytest

from cluster.models import Membership, User
from jobs.core.states import JobState
from jobs.models import Job, TrainingRun
from jobs.services.reconfigurations import Proposal


def layout(*microbatches):
    """Two pipelines of two stages on four ranks."""
    return {
        "replicas": [
            {
                "microbatches": count,
                "stages": [
                    {"devices": [f"r{2 * i}"], "layers": 2},
                    {"devices": [f"r{2 * i + 1}"], "layers": 2},
                ],
            }
            for i, count in enumerate(microbatches)
        ],
        "idle": [],
        "dead": [],
    }


@pytest.fixture
def people(team, researcher):
    """The requester (an admin, too), another admin, an operator."""
    researcher.memberships.update(role="admin")
    found = {"ada": researcher}
    for name, role in (("grace", "admin"), ("otto", "operator")):
        found[name] = User.objects.create(username=name)
        Membership.objects.create(team=team, user=found[name], role=role)
    return found


@pytest.fixture
def job(team, people):
    job = Job.objects.create(
        kind="training", name="gpt", team=team, owner=people["ada"], spec={}, state=JobState.RUNNING
    )
    TrainingRun.objects.create(job=job, steps_total=100, step=40, epoch=3, layout=layout(4, 4))
    return job


@pytest.fixture
def proposal():
    def make(*microbatches, **changes):
        fields = {
            "kind": "rebalance", "epoch": 3, "before": layout(4, 4), "plan": layout(*microbatches or (3, 5)),
            "baseline_iteration_s": 2.0, "predicted_iteration_s": 1.5, "predicted_pause_s": 0.2,
        }  # fmt: skip
        return Proposal(**(fields | changes))

    return make
